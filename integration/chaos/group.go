package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/integration/chaos/checker"
	"cairn/integration/workload"
)

const (
	groupName     = "chaos-group"
	groupMembers  = 2
	groupSession  = 6 * time.Second // group.min.session.timeout.ms
	observeEvery  = 300 * time.Millisecond
	commitWithin  = 4 * time.Second
	observeWithin = 2 * time.Second
)

// memberGroup is the consumers of a group, which come and go, and an observer of what they have committed.
type memberGroup struct {
	history *checker.Recorder
	addrs   []string
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu        sync.Mutex
	committed map[int32]int64 // as last observed; guarded by mu
}

func startMembers(p Plan, addrs []string, history *checker.Recorder) (*memberGroup, error) {
	observer, err := kgo.NewClient(workload.ClientOptions(addrs)...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := &memberGroup{history: history, addrs: addrs, cancel: cancel, committed: map[int32]int64{}}
	for i := range groupMembers {
		rng := rand.New(rand.NewPCG(p.Seed, uint64(0x9400+i)))
		g.wg.Go(func() {
			for ctx.Err() == nil {
				g.member(ctx, fmt.Sprint("member-", i), 2*time.Second+time.Duration(rng.Int64N(int64(8*time.Second))))
			}
		})
	}
	g.wg.Go(func() {
		defer observer.Close()
		for pause(ctx, observeEvery) == nil {
			g.observe(ctx, kadm.NewClient(observer), "observer")
		}
	})
	return g, nil
}

func (g *memberGroup) stop() {
	g.cancel()
	g.wg.Wait()
}

// member is one life of a member: it commits each poll's records after it has noted them, and leaves after a while.
func (g *memberGroup) member(ctx context.Context, client string, life time.Duration) {
	cl, err := kgo.NewClient(append(workload.ClientOptions(g.addrs), kgo.ConsumerGroup(groupName), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(200*time.Millisecond), kgo.SessionTimeout(groupSession),
		kgo.HeartbeatInterval(groupSession/6), kgo.RebalanceTimeout(2*groupSession), kgo.BlockRebalanceOnPoll())...)
	if err != nil {
		g.history.Add(checker.Event{Kind: checker.Fault, Text: fmt.Sprintf("%s: %v", client, err)})
		_ = pause(ctx, time.Second) // ctx tells the caller
		return
	}
	defer cl.CloseAllowingRebalance()
	lifeCtx, cancel := context.WithTimeout(ctx, life)
	defer cancel()
	for lifeCtx.Err() == nil {
		fetches := cl.PollRecords(lifeCtx, 500)
		g.note(client, fetches)
		if !fetches.Empty() {
			g.commit(ctx, cl, client, fetches)
		}
		cl.AllowRebalance()
	}
}

func (g *memberGroup) note(client string, fetches kgo.Fetches) {
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if len(p.Records) == 0 {
			return
		}
		e := checker.Event{Kind: checker.GroupPolled, Client: client, Partition: p.Partition}
		for _, r := range p.Records {
			e.Entries = append(e.Entries, checker.Entry{Offset: r.Offset, Epoch: r.LeaderEpoch, Value: valueOf(r.Value)})
		}
		g.history.Add(e)
	})
}

// commit commits what was polled. After an error it may be committed or not: the next commit or the next member goes on.
func (g *memberGroup) commit(ctx context.Context, cl *kgo.Client, client string, fetches kgo.Fetches) {
	offsets := map[int32]kgo.EpochOffset{}
	fetches.EachRecord(func(r *kgo.Record) {
		offsets[r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
	})
	if len(offsets) == 0 {
		return
	}
	commitCtx, cancel := context.WithTimeout(ctx, commitWithin)
	defer cancel()
	stored := map[int32]int64{}
	cl.CommitOffsetsSync(commitCtx, map[string]map[int32]kgo.EpochOffset{topic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			if err != nil {
				return
			}
			for _, t := range resp.Topics {
				for _, p := range t.Partitions {
					if p.ErrorCode == 0 {
						stored[p.Partition] = offsets[p.Partition].Offset
					}
				}
			}
		})
	for p, offset := range stored {
		g.history.Add(checker.Event{Kind: checker.GroupStored, Client: client, Partition: p, Offset: offset})
	}
}

// observe asks what is committed.
func (g *memberGroup) observe(ctx context.Context, adm *kadm.Client, client string) {
	ctx, cancel := context.WithTimeout(ctx, observeWithin)
	defer cancel()
	g.history.Add(checker.Event{Kind: checker.OffsetsAsked, Client: client})
	got, err := adm.FetchOffsetsForTopics(ctx, groupName, topic)
	if err != nil {
		return // coordinators come and go
	}
	for p, o := range got[topic] {
		if o.Err != nil {
			continue
		}
		g.history.Add(checker.Event{Kind: checker.OffsetFetched, Client: client, Partition: p, Offset: o.At})
		g.mu.Lock()
		g.committed[p] = o.At
		g.mu.Unlock()
	}
}

// waitCommitted waits until the group has committed all records. What it does not reach in time is a stuck partition.
func (g *memberGroup) waitCommitted(ctx context.Context, ends map[int32]int64) {
	at := func(p int32) int64 {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.committed[p]
	}
	for p, end := range ends {
		for at(p) < end && pause(ctx, 20*time.Millisecond) == nil {
		}
		if reached := at(p); reached < end {
			g.history.Add(checker.Event{Kind: checker.Stuck, Partition: p, Text: fmt.Sprintf("the group has committed offset %d of %d", reached, end)})
		}
	}
}
