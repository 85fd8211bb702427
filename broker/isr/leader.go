package isr

import (
	"errors"
	"fmt"
	"time"

	"cairn/broker/internal/rules"
	"cairn/internal/ids"
)

// The reasons why a leader refuses client work, or answers acks=all with an error.
var (
	// ErrLease: the broker's lease on its registration is over, so the controller may have moved on (design, rule 8).
	ErrLease = errors.New("the broker's lease has run out")
	// ErrNotEnoughReplicas: the committed ISR is below the effective minimum.
	ErrNotEnoughReplicas = errors.New("fewer in-sync replicas than the minimum")
)

// Config is what a reign does not change.
type Config struct {
	// Self is the leader's own replica.
	Self ids.ReplicaID
	// LagTimeMax is replica.lag.time.max.ms.
	LagTimeMax time.Duration
	// Off is for tests only.
	Off rules.Off
}

// Leader is the replication state of one reign. The zero value is not usable; see New.
type Leader struct {
	cfg   Config
	epoch ids.LeaderEpoch
	// start is the log end at which the leader registered: a member that holds less may lack what an earlier leader exposed.
	start ids.Offset

	// Invariant: hw never falls. saved and committed never fall either: a leader's log is not truncated.
	hw, saved, committed ids.Offset
	lease                time.Time

	view    View
	members []member // of view.Members, in that order
	inSync  int      // how many of them are in the committed ISR
	// flying: a proposal has been handed out and not answered yet.
	flying  bool
	samples samples
}

// member is what the leader knows of a replica.
type member struct {
	Member
	// end is the log end that it holds durably, NoOffset before it told.
	end ids.Offset
	// proposed: named in a proposal of the present partition epoch. It may be in the ISR without the leader knowing yet, so
	// it counts as if it were.
	proposed bool
}

// New begins a reign. start is the leader's log end when it registered, all of it saved; hw the last high watermark it
// heard of; v the image that shows the registration.
func New(cfg Config, v View, start, hw ids.Offset, now time.Time) *Leader {
	if hw > start || start < 0 {
		panic(fmt.Sprintf("BUG: reign begins at %d with high watermark %d", start, hw))
	}
	l := &Leader{
		cfg: cfg, epoch: v.LeaderEpoch, start: start, hw: hw, saved: start, committed: ids.NoOffset,
		samples: newSamples(cfg.LagTimeMax, now, start),
	}
	l.take(v)
	return l
}

// Epoch is the leader epoch of the reign.
func (l *Leader) Epoch() ids.LeaderEpoch { return l.epoch }

// HighWatermark is the offset below which consumers read.
func (l *Leader) HighWatermark() ids.Offset { return l.hw }

// Saved is the end offset of what is durable in the leader's own log: acks=1 is answered up to there.
func (l *Leader) Saved() ids.Offset { return l.saved }

// InSync is the size of the committed ISR and the effective minimum, of one image.
func (l *Leader) InSync() (size, minimum int) { return l.inSync, l.view.MinISR }

// Change says what an input has changed.
type Change struct {
	// HighWatermark has risen.
	HighWatermark bool
	// Propose may have something to propose.
	Propose bool
}

// NoteSaved tells the end of the leader's own durable log.
func (l *Leader) NoteSaved(end ids.Offset, now time.Time) Change {
	if end <= l.saved {
		return Change{}
	}
	l.saved = end
	l.samples.note(now, end)
	return Change{HighWatermark: l.advance()}
}

// NoteCommitted tells the end offset up to which Raft has committed.
func (l *Leader) NoteCommitted(end ids.Offset) Change {
	if end <= l.committed {
		return Change{}
	}
	l.committed = end
	return Change{HighWatermark: l.advance()}
}

// NoteProgress tells that a replica durably holds this leader's log up to end. Late and repeated reports, and those of
// replicas that are no members, change nothing.
func (l *Leader) NoteProgress(replica ids.ReplicaID, end ids.Offset) Change {
	for i := range l.members {
		m := &l.members[i]
		if m.Replica != replica {
			continue
		}
		if end <= m.end {
			return Change{}
		}
		m.end = end
		return Change{HighWatermark: l.advance(), Propose: !m.InSync && !l.flying && l.holdsEnough(m)}
	}
	return Change{}
}

// NoteLease tells until when the broker's lease holds.
func (l *Leader) NoteLease(until time.Time) { l.lease = until }

// NoteView tells a newer image of the partition. over: it shows that the reign has ended, and nothing may be exposed or
// answered any more. An older image than the last one changes nothing.
func (l *Leader) NoteView(v View) (c Change, over bool) {
	if v.Index <= l.view.Index {
		return Change{}, false
	}
	if v.LeaderEpoch != l.epoch || v.Leader != l.view.Leader {
		return Change{}, true
	}
	l.take(v)
	return Change{HighWatermark: l.advance(), Propose: !l.flying}, false
}

// take replaces the view. What replicas hold is kept by replica id: a node's new replica starts with nothing known. Once
// the partition epoch has moved, no earlier proposal can be accepted any more, and what was proposed counts no longer.
func (l *Leader) take(v View) {
	members := make([]member, len(v.Members))
	l.inSync = 0
	for i, m := range v.Members {
		members[i] = member{Member: m, end: ids.NoOffset}
		for j := range l.members {
			if old := &l.members[j]; old.Replica == m.Replica {
				members[i].end = old.end
				members[i].proposed = old.proposed && v.PartitionEpoch == l.view.PartitionEpoch
			}
		}
		if m.InSync {
			l.inSync++
		}
	}
	l.view, l.members = v, members
}

// advance raises the high watermark to what Raft has committed and the leader and all members of the maximal ISR hold:
// the committed ISR, and who may be in it without the leader knowing. It stands still while the committed ISR is below
// the effective minimum: members that left then stay eligible as leaders.
func (l *Leader) advance() bool {
	if l.inSync < l.view.MinISR && !l.cfg.Off.Has(rules.NoMinFreeze) {
		return false
	}
	hw := l.committed
	if !l.cfg.Off.Has(rules.HWBeforeSave) {
		hw = min(hw, l.saved)
	}
	for i := range l.members {
		m := &l.members[i]
		if m.Replica != l.cfg.Self && l.counts(m) {
			hw = min(hw, m.end)
		}
	}
	if hw <= l.hw {
		return false
	}
	l.hw = hw
	return true
}

// counts reports whether the high watermark waits for the member.
func (l *Leader) counts(m *member) bool {
	if l.cfg.Off.Has(rules.AckWithoutISR) {
		return false
	}
	return m.InSync || m.proposed && !l.cfg.Off.Has(rules.NoMaximalISR)
}

// CheckAppend is asked before a batch is appended: ErrLease, or for acks=all ErrNotEnoughReplicas.
func (l *Leader) CheckAppend(acksAll bool, now time.Time) error {
	switch {
	case !now.Before(l.lease):
		return ErrLease
	case acksAll && l.inSync < l.view.MinISR:
		return ErrNotEnoughReplicas
	}
	return nil
}

// Settled reports whether a request whose batches end at next can be answered, and how: acks=1 once the leader has saved
// them, acks=all once the high watermark has passed them. The lease and the ISR are looked at again, so the error
// (ErrLease, ErrNotEnoughReplicas) is for batches that were appended.
func (l *Leader) Settled(next ids.Offset, acksAll bool, now time.Time) (done bool, err error) {
	if acksAll && l.hw < next || l.saved < next {
		return false, nil
	}
	return true, l.CheckAppend(acksAll, now)
}
