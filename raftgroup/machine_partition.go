package raftgroup

import (
	"fmt"
	"io"

	"github.com/lni/dragonboat/v4/statemachine"

	"cairn/engine"
	"cairn/internal/ids"
)

// partitionMachine is the on-disk state machine of a partition group. It writes nothing: the log is the data, and the engine has saved it
// before it is applied. Applying an entry moves the committed position.
type partitionMachine struct{ g *Group }

// snapshotContent is what a partition's snapshot holds; dragonboat refuses an empty one.
const snapshotContent = "cairn partition 1\n"

// Open implements statemachine.IOnDiskStateMachine.
func (m *partitionMachine) Open(<-chan struct{}) (uint64, error) {
	applied := m.g.log.Applied()
	if applied > 0 {
		m.g.events.Committed(applied)
	}
	return uint64(applied), nil
}

// Update implements statemachine.IOnDiskStateMachine.
func (m *partitionMachine) Update(entries []statemachine.Entry) ([]statemachine.Entry, error) {
	for i := range entries {
		e := &entries[i]
		hd, err := engine.ParseHeader(e.Cmd)
		if err != nil {
			return nil, fmt.Errorf("apply entry %d of shard %d: %w", e.Index, m.g.lr.shard, err)
		}
		m.g.flight.settle(position{hd.Term, hd.Ordinal})
		if hd.Kind == engine.KindLogStart {
			if err := m.g.applyLogStart(ids.RaftIndex(e.Index), e.Cmd); err != nil {
				return nil, err
			}
		}
	}
	last := ids.RaftIndex(entries[len(entries)-1].Index)
	m.g.log.SetApplied(last)
	m.g.events.Committed(last)
	return entries, nil
}

// applyLogStart moves the log start, unless the entry is void, and lets the Raft log follow when the engine finds it worth a step.
func (g *Group) applyLogStart(index ids.RaftIndex, data []byte) error {
	kind, err := g.log.EntryKindAt(index)
	if err != nil {
		return fmt.Errorf("kind of entry %d of shard %d: %w", index, g.lr.shard, err)
	}
	if kind != engine.KindLogStart {
		return nil
	}
	offset, err := engine.DecodeLogStart(data)
	if err != nil {
		return fmt.Errorf("entry %d of shard %d: %w", index, g.lr.shard, err)
	}
	g.log.SetApplied(index) // the engine offers for compaction only what is applied
	compactTo, err := g.log.SetStart(offset)
	if err != nil {
		return fmt.Errorf("log start %d of shard %d: %w", offset, g.lr.shard, err)
	}
	g.events.LogStart(offset)
	if compactTo > 0 {
		g.Compact(compactTo)
	}
	return nil
}

// Lookup implements statemachine.IOnDiskStateMachine; nothing is looked up here.
func (m *partitionMachine) Lookup(any) (any, error) { return nil, nil }

// Sync implements statemachine.IOnDiskStateMachine: the engine stores the applied index with later saves.
func (m *partitionMachine) Sync() error { return nil }

// PrepareSnapshot implements statemachine.IOnDiskStateMachine.
func (m *partitionMachine) PrepareSnapshot() (any, error) { return nil, nil }

// SaveSnapshot implements statemachine.IOnDiskStateMachine. The start point of the receiver's log travels beside it, see chunk.go.
func (m *partitionMachine) SaveSnapshot(_ any, w io.Writer, _ <-chan struct{}) error {
	_, err := io.WriteString(w, snapshotContent)
	return err
}

// RecoverFromSnapshot implements statemachine.IOnDiskStateMachine. The engine installed the start point when the snapshot was saved.
func (m *partitionMachine) RecoverFromSnapshot(r io.Reader, _ <-chan struct{}) error {
	b, err := io.ReadAll(io.LimitReader(r, int64(len(snapshotContent))+1))
	if err != nil {
		return err
	}
	if string(b) != snapshotContent {
		return fmt.Errorf("snapshot of shard %d holds %d unknown bytes", m.g.lr.shard, len(b))
	}
	index := m.g.log.LogStartPoint().Index
	m.g.log.SetApplied(index)
	m.g.events.Committed(index)
	return nil
}

// Close implements statemachine.IOnDiskStateMachine.
func (m *partitionMachine) Close() error { return nil }

// snapshotStart returns the point at which a snapshot for another member stands.
func (g *Group) snapshotStart() (*snapshotStart, error) {
	at, encoded, ok, err := g.log.EncodeStartPoint()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("snapshot of shard %d: its log begins at index 1", g.lr.shard)
	}
	return &snapshotStart{at: at, encoded: encoded}, nil
}
