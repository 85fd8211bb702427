package engine

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"cairn/engine/producer"
)

// Two rows hold producer state. One is recent, so that a restart reads few entries. The other is the state exactly where the
// Raft log starts: it travels with a snapshot, whose receiver gets all entries behind the start and nothing before it.

// producersTravelMax bounds the producer state in a genesis and in a snapshot, well below what a proposal and a frame may hold.
const producersTravelMax = 64 << 20

// keepProducers stores the producer state at the new start, and where a restart goes on from when only entries that go could
// rebuild that.
func (l *Log) keepProducers(b *pebble.Batch, old StartPoint, at *StartPoint) error {
	state, err := l.startState(old)
	if err != nil {
		return err
	}
	var failed error
	err = l.scanEntries(old.Index+1, at.Index+1, func(row *EntryRow) bool {
		switch row.Kind {
		case KindGenesis:
			failed = loadGenesis(&state, row)
		case KindData:
			state.Append(row.Batch.producerBatch(), 0)
		}
		return failed == nil
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	l.sh.mu.RLock()
	state.Retain(func(id int64) bool { // who has expired meanwhile does not come back
		_, known := l.producers.Get(id)
		return known
	})
	l.sh.mu.RUnlock()
	l.putStartState(b, at, state.SnapshotWithin(producersTravelMax))
	p, err := l.storedProducers()
	if err != nil || p.Index >= at.Index {
		return err
	}
	row := producersRow{Shard: l.binding.Shard, Index: at.Index, Next: at.Next, Snapshot: state.AppendSnapshot(nil)}
	set(b, appendPartitionKey(nil, rowProducers, l.binding.Info.ID), row.appendTo(nil))
	return nil
}

// loadGenesis replaces the state by that which a genesis carries; one without says nothing.
func loadGenesis(state *producer.State, row *EntryRow) error {
	g, err := DecodeGenesis(row.Cmd[1:])
	if err != nil || len(g.Producers) == 0 {
		return err
	}
	return state.LoadSnapshot(g.Producers, 0)
}

func (l *Log) putStartState(b *pebble.Batch, at *StartPoint, snapshot []byte) {
	row := producersRow{Shard: l.binding.Shard, Index: at.Index, Next: at.Next, Snapshot: snapshot}
	set(b, appendPartitionKey(nil, rowStartState, l.binding.Info.ID), row.appendTo(nil))
}

// startState is the producer state at the start point at. It needs startMu.
func (l *Log) startState(at StartPoint) (s producer.State, err error) {
	snapshot, err := l.startSnapshot(at)
	if err == nil && len(snapshot) > 0 {
		err = s.LoadSnapshot(snapshot, 0)
	}
	return s, err
}

// startSnapshot is a snapshot of the producer state at the start point at, a copy; empty when none is known. It needs startMu.
func (l *Log) startSnapshot(at StartPoint) (snapshot []byte, err error) {
	if at.Index == 0 {
		return nil, nil // nothing, or what the genesis says
	}
	_, err = l.e.get(appendPartitionKey(nil, rowStartState, l.binding.Info.ID), func(v []byte) error {
		row, err := decodeProducersRow(v)
		if err != nil {
			return err
		}
		if row.Shard != l.binding.Shard || row.Index != at.Index {
			return nil // of an earlier owner, or written before there was such a row
		}
		snapshot = append([]byte(nil), row.Snapshot...)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("producer state at the log start of %s: %w", l.binding.Info.label(), err)
	}
	return snapshot, nil
}

// installProducers has the log go on from the producer state that came with a snapshot.
func (s *saver) installProducers(p *pendingSave, at *snapshotStart) {
	l := p.sh.log
	p.producers = new(producer.State)
	if len(at.producers) > 0 {
		if err := p.producers.LoadSnapshot(at.producers, at.receivedMs); err != nil {
			panic(fmt.Sprintf("BUG: producer state of an expected snapshot: %v", err)) // ExpectSnapshot has looked
		}
	}
	p.txns, p.txnsOwned, p.abortedTo = p.producers.Transactions(), true, 0
	l.putStartState(s.batch, &at.StartPoint, at.producers)
	row := producersRow{Shard: l.binding.Shard, Index: at.Index, Next: at.Next, Snapshot: at.producers}
	set(s.batch, appendPartitionKey(nil, rowProducers, l.binding.Info.ID), row.appendTo(nil))
}

// startAt is where the Raft log starts, and the epochs begun until there.
func (l *Log) startAt() (s snapshotStart) {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	s.StartPoint = l.sh.start
	for _, e := range l.epochs {
		if e.Index <= s.Index {
			s.epochs = append(s.epochs, e)
		}
	}
	return s
}
