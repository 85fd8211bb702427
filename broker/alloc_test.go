package broker

import (
	"context"
	"net"
	"testing"
	"time"

	"cairn/broker/isr"
	"cairn/engine"
	"cairn/internal/ids"
	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Most allocations of one request with one partition, between the parsed request and the answer handed to the
// connection's writer. Raft, the log and the encoding of the answer are not counted.
const (
	maxProduceAllocs = 9
	maxFetchAllocs   = 11
)

// detachedConn is a connection that nobody reads or writes: its answers stay in the request.
func detachedConn(t testing.TB, n *Node) *conn {
	client, server := net.Pipe()
	t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
	return newConn(n.server, n.server.bound()[0], server, "test")
}

// instantSaves puts a sequencer into p that saves what is proposed at once, so that nothing of Raft is measured.
func instantSaves(t testing.TB, p *partition) {
	t.Helper()
	r := p.reign.Load()
	next := ids.Offset(0)
	var entry [1]engine.SavedEntry
	fake := &reign{term: r.term, epoch: r.epoch, start: r.start}
	fake.ctx, fake.cancel = context.WithCancel(t.Context())
	var saved ticket = &fakeTicket{}
	var seq *sequencer
	seq = newSequencer(func(_ context.Context, data []byte) (ticket, error) {
		h, err := engine.ParseHeader(data)
		entry[0] = engine.SavedEntry{Term: h.Term, HeaderTerm: h.Term, Ordinal: h.Ordinal, Kind: h.Kind, Base: next, Next: next + 1}
		next++
		seq.onSaved(entry[:])
		return saved, err
	}, p.savedProducer)
	seq.begin(fake)
	p.seq = seq
	p.watches.open(p, fake, 1<<60)
	p.reign.Store(fake)
	rep := &p.replication
	rep.mu.Lock()
	defer rep.mu.Unlock()
	old := rep.leader
	rep.reign = fake
	rep.leader = isr.New(isr.Config{Self: p.self}, rep.seen.img.View(rep.seen.img.TopicsByID[p.topicID], rep.seen.state), 1<<60, 1<<60, time.Now())
	t.Cleanup(func() {
		rep.mu.Lock()
		defer rep.mu.Unlock()
		rep.reign, rep.leader = r, old
		p.reign.Store(r)
	})
}

func TestProducePathAllocations(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 1, nil)
	instantSaves(t, awaitLeader(t, n, "t", 0))
	raw := testBatch(t, 10)
	for _, acks := range []int16{acksAll, acksLeader} {
		c := detachedConn(t, n)
		got := testing.AllocsPerRun(200, func() {
			// The sequencer writes its header over the batch's, so every run starts from the client's bytes.
			copy(raw[:8], make([]byte, 8))
			putLength(raw)
			r := &request{hdr: wire.Header{Version: 9}, msg: produceReq(9, acks, "t", id, 0, raw), conn: c, arrived: time.Now()}
			handleProduce(n.broker, r)
			if !r.done || r.resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode != 0 {
				t.Fatalf("not answered, or with an error: %+v", r.resp)
			}
		})
		const making = 4 // the request itself: message, two slices, request
		t.Logf("acks %d: %.0f allocations", acks, got)
		if got > maxProduceAllocs+making {
			t.Errorf("acks %d: %.0f allocations, at most %d expected", acks, got-making, maxProduceAllocs)
		}
	}
}

// putLength restores the length of a batch over which a proposal's header was written.
func putLength(raw []byte) {
	n := uint32(len(raw) - 12)
	raw[8], raw[9], raw[10], raw[11] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
}

func TestFetchPathAllocations(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 1, nil)
	c := dialNode(t, n)
	c.fill("t", id, 0, 1)
	detached := detachedConn(t, n)
	req := fetchTopic(12, "t", kadm.TopicID{}, 0)
	got := testing.AllocsPerRun(200, func() {
		r := &request{hdr: wire.Header{Key: 1, Version: 12}, msg: req, conn: detached, arrived: time.Now()}
		handleFetch(n.broker, r)
		if !r.done || len(r.bufs) < 2 {
			t.Fatal("not answered, or without records")
		}
	})
	t.Logf("%.0f allocations", got)
	if got > maxFetchAllocs {
		t.Errorf("%.0f allocations, at most %d expected", got, maxFetchAllocs)
	}
}
