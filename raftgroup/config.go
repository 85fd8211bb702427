package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"go.uber.org/zap"

	"cairn/engine"
	"cairn/internal/ids"
)

// Config configures a Host. Zero values of durations, counts and bounds mean the default named with them.
type Config struct {
	NodeID ids.NodeID
	Dir    string         // dragonboat's own files: lock, node host id, snapshots of the metadata group
	Engine *engine.Engine // not closed by the Host

	// Dial opens a connection to the node's Raft endpoint (see ServeConn); the Host writes Preface and closes it. It must respect ctx.
	Dial func(ctx context.Context, node ids.NodeID) (net.Conn, error)

	// OnPeerDown hears once when a watched peer that had answered stops answering; OnPeerUp when it answers (again). Called from the
	// peer's watcher, one at a time per peer; must not block. Either may be nil.
	OnPeerDown, OnPeerUp func(node ids.NodeID)

	TickInterval   time.Duration // 100 ms
	ElectionTicks  int           // 20
	HeartbeatTicks int           // 5

	GroupInflightBytes   int64         // bytes proposed to one group and not yet applied: 32 MiB
	TotalInflightBytes   int64         // the same over all groups of this host: 64 MiB
	MaxSendQueueBytes    int64         // entries queued for one peer, in each of dragonboat's four queues: 16 MiB
	MaxReceiveQueueBytes int64         // entries received and not yet looked at, per group: 32 MiB
	PeerTimeout          time.Duration // a peer that does not answer for so long is down: 500 ms
	WriteTimeout         time.Duration // for a frame, plus a second for each 8 MiB of it: 5 s

	Logger *zap.Logger // nil: none
	Faults Faults
}

// Faults are test hooks. The zero value injects none.
type Faults struct {
	// DropMessage discards an inbound Raft message. kind is dragonboat's name of the type, e.g. "Replicate".
	DropMessage func(shard ids.ShardID, from, to ids.ReplicaID, kind string) bool
}

func (c Config) withDefaults() Config {
	c.TickInterval = orDefault(c.TickInterval, 100*time.Millisecond)
	c.ElectionTicks = orDefault(c.ElectionTicks, 20)
	c.HeartbeatTicks = orDefault(c.HeartbeatTicks, 5)
	c.GroupInflightBytes = orDefault(c.GroupInflightBytes, 32<<20)
	c.TotalInflightBytes = orDefault(c.TotalInflightBytes, 64<<20)
	c.MaxSendQueueBytes = orDefault(c.MaxSendQueueBytes, 16<<20)
	c.MaxReceiveQueueBytes = orDefault(c.MaxReceiveQueueBytes, 32<<20)
	c.PeerTimeout = orDefault(c.PeerTimeout, 500*time.Millisecond)
	c.WriteTimeout = orDefault(c.WriteTimeout, 5*time.Second)
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Validate reports everything that is wrong with c, after defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("raftgroup config: "+format, args...))
		}
	}
	check(c.NodeID >= 0, "node id %d", c.NodeID)
	check(c.Dir != "", "no directory")
	check(c.Engine != nil, "no engine")
	check(c.Dial != nil, "no dial function")
	check(c.TickInterval >= time.Millisecond, "tick interval %v is below 1 ms", c.TickInterval)
	check(c.HeartbeatTicks > 0 && c.ElectionTicks > 2*c.HeartbeatTicks, "election after %d ticks, heartbeat after %d", c.ElectionTicks, c.HeartbeatTicks)
	check(c.GroupInflightBytes > 0 && c.GroupInflightBytes <= maxEntryBytes, "%d bytes in flight per group, want 1 to %d", c.GroupInflightBytes, maxEntryBytes)
	check(c.TotalInflightBytes >= c.GroupInflightBytes, "%d bytes in flight in all, %d per group", c.TotalInflightBytes, c.GroupInflightBytes)
	check(c.MaxSendQueueBytes >= 1<<20 && c.MaxReceiveQueueBytes >= 1<<20, "queues of %d and %d bytes, want 1 MiB or more", c.MaxSendQueueBytes, c.MaxReceiveQueueBytes)
	check(c.PeerTimeout > 0 && c.WriteTimeout > 0, "negative timeout")
	return errors.Join(errs...)
}

// GroupConfig describes the local replica of a partition group.
type GroupConfig struct {
	Binding engine.Binding
	Members map[ids.ReplicaID]ids.NodeID // initial voters; the same at every start, or empty when Join
	// Join and NonVoting are for a replica that was added to a running group; both stay set at every later start, after a promotion too.
	Join, NonVoting bool
	Events          Events
	// Pace says of a member far behind, to which so many bytes were sent, how long it is to wait for more; false lets it take what it can.
	// Asked on the leader, by the readers of connections; must not block. nil: nobody is paced.
	Pace func(member ids.ReplicaID, bytes int) (wait time.Duration, paced bool)
}

// Events hears of one group. Methods are called from workers of Raft and of the engine and must not block nor call back into the group's
// Stop. Saved and Truncated come in log order; the other methods in order among themselves; the two sequences are concurrent.
type Events interface {
	// LeaderChanged is called when the leader or its term, as known here, changed. leader is 0 when there is none.
	LeaderChanged(leader ids.ReplicaID, term ids.Term)
	// Saved reports entries that are durable here. Borrowed until return.
	Saved(entries []engine.SavedEntry)
	// Truncated reports that the log from first on is gone and ends at offset next: conflicting entries are about to be replaced, or
	// (first is one above the log start) a snapshot at the log start was installed and all older data is gone too.
	Truncated(first ids.RaftIndex, next ids.Offset)
	// Committed reports that everything up to index is committed and applied here. Monotonic. No-ops and membership changes alone don't raise it.
	Committed(index ids.RaftIndex)
	// Progress is called on the leader of term only: replica from durably holds the log up to index. May repeat.
	Progress(from ids.ReplicaID, index ids.RaftIndex, term ids.Term)
	// HighWatermark reports that a leader of this group has told that it exposed the log below hw to consumers. It may repeat, and be ahead of
	// what is saved or committed here. Not called for what this replica itself showed.
	HighWatermark(hw ids.Offset)
	// LogStart reports that a log-start entry was applied: the log begins at offset now.
	LogStart(offset ids.Offset)
}

// Machine is the replicated state machine of the metadata group. Calls are never concurrent.
type Machine interface {
	// Apply is deterministic. cmd is borrowed until return, result owned by the caller.
	Apply(index uint64, cmd []byte) (result []byte)
	Snapshot() ([]byte, error)
	Restore(snapshot []byte) error
}

// MachineConfig describes the local replica of the metadata group.
type MachineConfig struct {
	Replica         ids.ReplicaID
	Members         map[ids.ReplicaID]ids.NodeID // initial voters; empty when Join
	Join, NonVoting bool                         // as in GroupConfig
	Machine         Machine
	// LeaderChanged is called like Events.LeaderChanged. May be nil.
	LeaderChanged func(leader ids.ReplicaID, term ids.Term)
	// A snapshot is taken every SnapshotEntries applied entries (8192) and leaves CompactionOverhead entries (1024) in the log.
	SnapshotEntries, CompactionOverhead uint64
}
