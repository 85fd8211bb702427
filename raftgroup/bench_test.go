package raftgroup

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"cairn/engine"
	"cairn/internal/ids"
)

// BenchmarkPropose measures propose → saved → committed on one node and three, fsync on, in bytes proposed.
func BenchmarkPropose(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
			for _, groups := range []int{1, 12} {
				b.Run(fmt.Sprintf("nodes=%d/size=%dKiB/groups=%d", nodes, size>>10, groups), func(b *testing.B) { benchmarkPropose(b, nodes, size, groups) })
			}
		}
	}
}

func benchmarkPropose(b *testing.B, nodes, size, groups int) {
	c := newCluster(b)
	var all []*testNode
	for i := range nodes {
		all = append(all, c.start(ids.NodeID(i+1), nodeOptions{engine: func(c *engine.Config) {
			*c = engine.Config{Dir: c.Dir}
		}}))
	}
	var writers []*writer
	for p := range groups {
		writers = append(writers, threeWay(p+1, all...)[0].lead(b))
	}
	ctx := context.Background()
	var next atomic.Int64
	done := make(chan error)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	for _, w := range writers {
		go func() {
			data := rawBatch(size)
			for next.Add(1) <= int64(b.N) {
				engine.PutHeader(data, w.header(engine.KindData))
				if _, err := w.propose(ctx, data); err != nil {
					done <- err
					return
				}
			}
			done <- w.m.Drained(ctx)
		}()
	}
	for range writers {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
}

// BenchmarkProposeLatency measures one proposal at a time: until it is saved here (acks=1), and until it is committed here.
func BenchmarkProposeLatency(b *testing.B) {
	for _, nodes := range []int{1, 3} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			c := newCluster(b)
			var all []*testNode
			for i := range nodes {
				all = append(all, c.start(ids.NodeID(i+1), nodeOptions{}))
			}
			w := threeWay(1, all...)[0].lead(b)
			saved, committed := make(chan ids.RaftIndex, 16), make(chan ids.RaftIndex, 16)
			w.settled()
			w.m.rec.mu.Lock()
			w.m.rec.onSaved = func(e engine.SavedEntry) { saved <- e.Index }
			w.m.rec.onCommit = func(i ids.RaftIndex) { committed <- i }
			w.m.rec.mu.Unlock()
			var toSaved time.Duration
			b.ReportAllocs()
			for b.Loop() {
				begin := time.Now()
				w.mustPropose(w.data(1000))
				want := <-saved
				toSaved += time.Since(begin)
				for i := ids.RaftIndex(0); i < want; i = <-committed {
				}
			}
			b.ReportMetric(float64(toSaved.Microseconds())/float64(b.N), "µs-to-saved")
		})
	}
}

// BenchmarkCatchUp measures how fast a follower that was away gets 64 MiB of the log, in bytes of the log.
func BenchmarkCatchUp(b *testing.B) {
	const batches, size = 1024, 64 << 10
	for b.Loop() {
		b.StopTimer()
		c := newCluster(b)
		ms := threeWay(1, c.start(1, nodeOptions{}), c.start(2, nodeOptions{}), c.start(3, nodeOptions{}))
		w := ms[0].lead(b)
		w.write(1, 1000)
		w.settled()
		sameLog(b, ms[0], ms[2])
		if err := ms[2].Stop(testContext(b)); err != nil {
			b.Fatal(err)
		}
		w.write(batches, size)
		w.settled()
		b.StartTimer()
		begin := time.Now()
		late := c.nodes[3].group(1, 3, map[ids.ReplicaID]ids.NodeID{1: 1, 2: 2, 3: 3})
		eventually(b, "the first entry arrives", func() bool { return late.Log().End() > 1 })
		waited := time.Since(begin)
		eventually(b, "the follower has it all", func() bool { return late.Log().End() == ms[0].Log().End() })
		b.ReportMetric(batches*size/1e6/(time.Since(begin)-waited).Seconds(), "MB/s-once-begun")
		b.StopTimer()
		for _, n := range c.nodes {
			n.stop()
		}
		b.StartTimer()
	}
	b.SetBytes(batches * size)
}
