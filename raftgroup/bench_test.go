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
