package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/chaos/checker"
	"cairn/integration/workload"
)

const readers = 2 // of each isolation level

// readerGroup is the readers of a round: each reads all partitions from their starts and goes on at their ends.
type readerGroup struct {
	history *checker.Recorder
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu   sync.Mutex
	next map[string]map[int32]int64 // by reader and partition; guarded by mu
}

// isCommitted reports whether the reader sees committed transactions only.
func isCommitted(client string) bool { return strings.HasPrefix(client, committedReader) }

const (
	plainReader     = "reader-"
	committedReader = "committed-"
)

func startReaders(p Plan, addrs []string, history *checker.Recorder) (*readerGroup, error) {
	ctx, cancel := context.WithCancel(context.Background())
	g := &readerGroup{history: history, cancel: cancel, next: map[string]map[int32]int64{}}
	for i := range 2 * readers {
		client, level := fmt.Sprint(plainReader, i), kgo.ReadUncommitted()
		if i >= readers {
			client, level = fmt.Sprint(committedReader, i), kgo.ReadCommitted()
		}
		offsets := map[int32]kgo.Offset{}
		for partition := range p.Partitions {
			offsets[partition] = kgo.NewOffset().At(0)
		}
		cl, err := kgo.NewClient(append(workload.ClientOptions(addrs), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond),
			kgo.FetchIsolationLevel(level), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}))...)
		if err != nil {
			cancel()
			return nil, err
		}
		g.next[client] = map[int32]int64{}
		g.wg.Go(func() {
			defer cl.Close()
			for ctx.Err() == nil {
				g.note(client, cl.PollFetches(ctx))
			}
		})
	}
	return g, nil
}

func (g *readerGroup) stop() {
	g.cancel()
	g.wg.Wait()
}

// note writes down what a poll brought. The notice of a loss may come in one poll with records that were fetched before it.
func (g *readerGroup) note(client string, fetches kgo.Fetches) {
	rewinds := map[int32]int64{}
	for _, e := range fetches.Errors() {
		if loss, ok := errors.AsType[*kgo.ErrDataLoss](e.Err); ok {
			rewinds[e.Partition] = loss.ResetTo
		}
	}
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if len(p.Records) == 0 {
			return
		}
		if to, ok := rewinds[p.Partition]; ok && p.Records[0].Offset < g.position(client, p.Partition) {
			delete(rewinds, p.Partition)
			g.rewind(client, p.Partition, to)
		}
		e := checker.Event{Kind: checker.Polled, Client: client, Partition: p.Partition, Committed: isCommitted(client)}
		for _, r := range p.Records {
			e.Entries = append(e.Entries, checker.Entry{Offset: r.Offset, Epoch: r.LeaderEpoch, Value: valueOf(r.Value)})
		}
		g.history.Add(e)
		g.move(client, p.Partition, e.Entries[len(e.Entries)-1].Offset+1)
	})
	for p, to := range rewinds {
		g.rewind(client, p, to)
	}
}

func (g *readerGroup) rewind(client string, partition int32, to int64) {
	g.history.Add(checker.Event{Kind: checker.Rewound, Client: client, Partition: partition, Offset: to})
	g.move(client, partition, min(to, g.position(client, partition)))
}

func (g *readerGroup) position(client string, partition int32) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.next[client][partition]
}

func (g *readerGroup) move(client string, partition int32, to int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next[client][partition] = to
}

// waitEnds waits until all readers have reached the ends, and writes that down. What they do not reach in time is a stuck partition.
func (g *readerGroup) waitEnds(ctx context.Context, all, committed map[int32]int64) {
	for client := range g.next {
		ends := all
		if isCommitted(client) {
			ends = committed
		}
		for p, end := range ends {
			for g.position(client, p) < end && pause(ctx, 20*time.Millisecond) == nil {
			}
			e := checker.Event{Kind: checker.CaughtUp, Client: client, Partition: p, Offset: end, Committed: isCommitted(client)}
			if at := g.position(client, p); at < end {
				e.Kind, e.Text = checker.Stuck, fmt.Sprintf("%s is at offset %d of %d", client, at, end)
			}
			g.history.Add(e)
		}
	}
}
