package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/clock"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// A generation of a partition begins with one voter, the seed, on the data that it has stored. All others join it: they find
// where their log and the leader's part, put what lies beyond into quarantine, copy what they lack below the generation's
// base, and start as members without a vote. All of that is done while nothing of the partition runs here.

const (
	// notYetRetry is the wait after a step that somebody else has to be ready for.
	notYetRetry = 100 * time.Millisecond
	// copiesAtOnce bounds the prefixes that are copied to this broker at a time.
	copiesAtOnce = 4
	// prefixWithin bounds the wait for one answer of the leader.
	prefixWithin = 10 * time.Second
	// copyLook is how often a copy that waits looks whether it is still wanted.
	copyLook = 100 * time.Millisecond
)

// errNotYet: the replica cannot be started before something happens elsewhere; it is tried again.
var errNotYet = errors.New("not yet")

// is reports whether p is the replica that the metadata wants here.
func (p *partition) is(state *controller.Partition) bool {
	at := state.ReplicaOf(p.node)
	return at >= 0 && p.shard == state.Shard && p.self == state.ReplicaIDs[at]
}

// prepare brings what is stored in line with the generation, and returns the binding to start the replica with.
func (m *replicaManager) prepare(info engine.PartitionInfo, state *controller.Partition, self ids.ReplicaID) (engine.Binding, error) {
	b := engine.Binding{Info: info, Shard: state.Shard, Replica: self, Generation: state.Generation, BaseOffset: state.BaseOffset}
	former, found, err := m.cfg.Engine.Owner(info.ID)
	if err != nil {
		return b, fmt.Errorf("read the owner of %s: %w", label(info), err)
	}
	owner := found && former.Shard == b.Shard && former.Replica == b.Replica
	_, founder := state.Members()[self]
	switch {
	case founder && owner:
		b.BaseOffset = former.BaseOffset
		return b, nil
	case !founder && state.BaseOffset == ids.NoOffset:
		return b, fmt.Errorf("%w: the seed has not registered", errNotYet)
	}
	stored, found, err := m.cfg.Engine.Stored(info.ID)
	if engine.IsDamage(err) {
		m.noteDamage(former, err)
		if !founder && !owner { // made anew already: what is there does not matter
			stored, found, err = engine.Stored{Binding: former}, true, nil
		}
	}
	switch {
	case err != nil:
		return b, fmt.Errorf("read what is stored of %s: %w", label(info), err)
	case !founder && found && stored.Binding == b && stored.Complete():
		return b, nil
	case !founder:
		return b, m.join(b, state, stored, found)
	case b.BaseOffset == ids.NoOffset:
		b.BaseOffset = stored.End // 0 when nothing is stored
		m.cfg.Log.Info("next generation begins here", zap.String("topic", info.Topic), zap.Int32("partition", info.Partition),
			zap.Int32("generation", state.Generation), zap.Int64("baseOffset", int64(stored.End)))
	}
	return b, nil
}

// join makes the stored log a prefix of the generation's.
func (m *replicaManager) join(b engine.Binding, state *controller.Partition, stored engine.Stored, found bool) error {
	leader, err := m.dialLeader(b.Info, state)
	if err != nil {
		return err
	}
	about, err := leader.ask(ids.NoOffset)
	if err != nil {
		return err
	}
	if about.base != b.BaseOffset {
		return fmt.Errorf("%w: the leader's generation begins at %d, not at %d", errNotYet, about.base, b.BaseOffset)
	}
	r := engine.Rebase{
		Binding: b, Start: about.start, Epochs: epochsBelow(about.epochs, b.BaseOffset), Damaged: m.repairs.has(b.Info.ID),
	}
	if !found || stored.Binding != b {
		if found {
			r.Agreed = agreement(stored.Epochs, stored.End, about.epochs, about.end)
			m.cfg.Log.Info("joining generation", zap.String("topic", b.Info.Topic), zap.Int32("partition", b.Info.Partition),
				zap.Int32("generation", b.Generation), zap.Int64("baseOffset", int64(b.BaseOffset)), zap.Int64("logEnd", int64(stored.End)),
				zap.Int64("agreed", int64(r.Agreed)), zap.Bool("damaged", r.Damaged))
		}
		if err := m.cfg.Engine.Rebase(r); err != nil {
			return err
		}
	}
	return m.copyPrefix(leader, r)
}

// copyPrefix copies what is missing below the base. It goes on where an earlier attempt ended.
func (m *replicaManager) copyPrefix(leader *leaderLink, r engine.Rebase) error {
	prefix, err := m.cfg.Engine.OpenPrefix(r.Binding)
	if err != nil {
		return err
	}
	if prefix.Next() < r.BaseOffset {
		select {
		case m.copies <- struct{}{}:
			defer func() { <-m.copies }()
		default:
			return fmt.Errorf("%w: other partitions are being copied", errNotYet)
		}
	}
	for prefix.Next() < r.BaseOffset {
		if err := m.checkRoom(true); err != nil {
			return fmt.Errorf("%w: %w", errNotYet, err)
		}
		if !m.stillWanted(r.Binding) {
			return fmt.Errorf("%w: the metadata wants something else by now", errNotYet)
		}
		got, err := leader.ask(prefix.Next())
		if err != nil {
			return err
		}
		if got.start > prefix.Next() { // what is here has expired there
			r.Agreed, r.Start, r.Damaged = prefix.Next(), got.start, false
			if err := m.cfg.Engine.Rebase(r); err != nil {
				return err
			}
			if prefix, err = m.cfg.Engine.OpenPrefix(r.Binding); err != nil {
				return err
			}
			continue
		}
		if len(got.records) == 0 {
			break // nothing is left below the base
		}
		if err := prefix.Append(got.records, got.aborted); err != nil {
			return err
		}
		m.pauseCopy(r.Binding, time.Duration(got.waitMs)*time.Millisecond)
	}
	return prefix.Finish()
}

// pauseCopy waits as long as the leader asks for, or until the copy is not wanted any more.
func (m *replicaManager) pauseCopy(b engine.Binding, wait time.Duration) {
	for until := clock.Now().Add(min(wait, blockedWait)); m.stillWanted(b); {
		left := time.Until(until)
		if left <= 0 {
			return
		}
		timer := time.NewTimer(min(left, copyLook))
		select {
		case <-timer.C:
		case <-m.stopping.Done():
			timer.Stop()
			return
		}
	}
}

// stillWanted reports whether the metadata still has that replica, and this broker is not shutting down.
func (m *replicaManager) stillWanted(b engine.Binding) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	s := m.slots[b.Info.ID]
	if m.closed || s == nil || s.wanted == nil || s.wanted.Shard != b.Shard {
		return false
	}
	return s.wanted.NodeOf(b.Replica) == m.cfg.NodeID
}

// epochsBelow are the epochs of a log below an offset.
func epochsBelow(epochs []engine.EpochStart, base ids.Offset) []engine.EpochStart {
	n := len(epochs)
	for n > 0 && epochs[n-1].Start >= base {
		n--
	}
	return epochs[:n:n]
}

// agreement is up to where two logs are the same: to the end of the newest epoch that both have, in the log in which it ends
// first. An epoch's batches come from one leader, in one order.
func agreement(local []engine.EpochStart, localEnd ids.Offset, leader []engine.EpochStart, leaderEnd ids.Offset) ids.Offset {
	for i := len(local) - 1; i >= 0; i-- {
		for j := len(leader) - 1; j >= 0; j-- {
			if local[i] == withIndex(leader[j], local[i].Index) {
				return min(epochEnd(local, i, localEnd), epochEnd(leader, j, leaderEnd))
			}
		}
	}
	return 0
}

func withIndex(e engine.EpochStart, index ids.RaftIndex) engine.EpochStart {
	e.Index = index
	return e
}

// epochEnd is where the i-th epoch of a log ends.
func epochEnd(epochs []engine.EpochStart, i int, end ids.Offset) ids.Offset {
	if i+1 < len(epochs) {
		return epochs[i+1].Start
	}
	return end
}

// leaderError turns the leader's answer into an error.
func leaderError(code int16) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("%w: the leader says: %w", errNotYet, kerr.ErrorForCode(code))
}

func (m *replicaManager) askContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(m.stopping, prefixWithin)
}
