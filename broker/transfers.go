package broker

import (
	"context"
	"sync"
	"time"

	"cairn/internal/ids"

	"go.uber.org/zap"
)

// transferWithin is how long after a hand-over that failed Raft still drops proposals: an election timeout, and a little.
const transferWithin = 2500 * time.Millisecond

// transfers are the hand-overs that the controller has asked for.
type transfers struct {
	wake chan struct{} // capacity 1

	mu  sync.Mutex
	due map[*partition]ids.ReplicaID // guarded by mu; whom to hand over to; the newest request of a partition counts
}

func newTransfers() transfers {
	return transfers{wake: make(chan struct{}, 1), due: map[*partition]ids.ReplicaID{}}
}

// request has p handed over to a replica. It does not block.
func (t *transfers) request(p *partition, to ids.ReplicaID) {
	t.mu.Lock()
	t.due[p] = to
	t.mu.Unlock()
	signal(t.wake)
}

func (t *transfers) take() map[*partition]ids.ReplicaID {
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.due
	t.due = map[*partition]ids.ReplicaID{}
	return due
}

// runTransfers hands over what the controller asks for until ctx ends. What fails is asked for again by the images that
// follow, until the controller gives up.
func (m *replicaManager) runTransfers(ctx context.Context) {
	for {
		select {
		case <-m.transfers.wake:
		case <-ctx.Done():
			return
		}
		due := m.transfers.take()
		ps := make([]*partition, 0, len(due))
		for p := range due {
			ps = append(ps, p)
		}
		_ = forEach(ps, func(p *partition) error { p.transferTo(ctx, due[p]); return nil })
	}
}

// transferTo hands p over to one replica. Clients would wait for one that fails, so a replica that has not answered for the present end of the log,
// as one that only the controller still reaches, is not tried.
func (p *partition) transferTo(ctx context.Context, to ids.ReplicaID) {
	r := p.serving()
	if r == nil {
		return
	}
	if !p.followers.catchesUp(ctx, to, r.term, p.log().LastIndex()) {
		p.debug("leadership is not handed over yet: the replica does not follow", zap.Uint64("to", uint64(to)))
		return
	}
	p.handOverOrGoOn(ctx, r, to)
}

// handOverOrGoOn hands p over. If that fails it goes on leading in r, once Raft takes proposals again.
func (p *partition) handOverOrGoOn(ctx context.Context, r *reign, to ids.ReplicaID) {
	p.debug("leadership is handed over", zap.Uint64("to", uint64(to)))
	err := p.handOver(ctx, []ids.ReplicaID{to})
	if err == nil {
		return
	}
	p.owner.cfg.Log.Info("leadership not handed over as the controller asked", append(p.fields(), zap.Error(err))...)
	ctx, cancel := context.WithTimeout(ctx, transferWithin)
	defer cancel()
	if p.awaitLoss(ctx, r.term) != nil {
		p.seq.resume(r)
		r.closing.Store(false)
	}
}

// handOverAsAsked hands the partition over if the image says so.
func (p *partition) handOverAsAsked(s *seenState) {
	if s.state == nil || s.state.Transfer == nil || s.state.Transfer.To == p.node {
		return
	}
	if at := s.state.ReplicaOf(s.state.Transfer.To); at >= 0 {
		p.owner.transfers.request(p, s.state.ReplicaIDs[at])
	}
}
