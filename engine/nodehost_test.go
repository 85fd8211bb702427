package engine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"cairn/internal/ids"
)

// partitionMachine is a partition's state machine: it holds nothing.
type partitionMachine struct {
	log     *Log
	updates *atomic.Int64
}

func (m *partitionMachine) Open(<-chan struct{}) (uint64, error) { return uint64(m.log.Applied()), nil }

func (m *partitionMachine) Update(entries []sm.Entry) ([]sm.Entry, error) {
	m.updates.Add(int64(len(entries)))
	m.log.SetApplied(ids.RaftIndex(entries[len(entries)-1].Index))
	return entries, nil
}
func (m *partitionMachine) Lookup(any) (any, error)       { return nil, nil }
func (m *partitionMachine) Sync() error                   { return nil }
func (m *partitionMachine) PrepareSnapshot() (any, error) { return nil, nil }
func (m *partitionMachine) SaveSnapshot(any, io.Writer, <-chan struct{}) error {
	return nil
}
func (m *partitionMachine) RecoverFromSnapshot(io.Reader, <-chan struct{}) error { return nil }
func (m *partitionMachine) Close() error                                         { return nil }

// countMachine is a state machine in memory, as the metadata group has one.
type countMachine struct{ bytes []byte }

func (m *countMachine) Update(e sm.Entry) (sm.Result, error) {
	m.bytes = append(m.bytes, e.Cmd...)
	return sm.Result{Value: uint64(len(m.bytes))}, nil
}
func (m *countMachine) Lookup(any) (any, error) { return bytes.Clone(m.bytes), nil }
func (m *countMachine) SaveSnapshot(w io.Writer, _ sm.ISnapshotFileCollection, _ <-chan struct{}) error {
	_, err := w.Write(m.bytes)
	return err
}

func (m *countMachine) RecoverFromSnapshot(r io.Reader, _ []sm.SnapshotFile, _ <-chan struct{}) (err error) {
	m.bytes, err = io.ReadAll(r)
	return err
}
func (m *countMachine) Close() error { return nil }

// host is one broker's NodeHost over an engine on disk.
type host struct {
	t       *testing.T
	dir     string
	address string
	e       *Engine
	nh      *dragonboat.NodeHost
	log     *Log
	updates atomic.Int64
	reads   atomic.Int64
}

func (h *host) start() {
	h.t.Helper()
	h.e = openMem(h.t, vfs.Default, func(c *Config) {
		c.Dir = h.dir
		c.DropStepBytes = 1
		c.Faults.DataRead = func(ids.PartitionID, ids.Offset) { h.reads.Add(1) }
	})
	nh, err := dragonboat.NewNodeHost(config.NodeHostConfig{
		NodeHostDir: h.dir + "/raft", RTTMillisecond: 5, RaftAddress: h.address,
		Expert: config.ExpertConfig{LogDBFactory: h.e.LogDBFactory()},
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.nh = nh
	if h.log, err = h.e.Bind(testBinding(1), nil); err != nil {
		h.t.Fatal(err)
	}
	members := map[uint64]dragonboat.Target{1001: h.address}
	cfg := config.Config{ShardID: 101, ReplicaID: 1001, ElectionRTT: 10, HeartbeatRTT: 1, PreVote: true, CompactionOverhead: math.MaxUint64}
	newMachine := func(uint64, uint64) sm.IOnDiskStateMachine { return &partitionMachine{h.log, &h.updates} }
	if err := nh.StartOnDiskReplica(members, false, newMachine, cfg); err != nil {
		h.t.Fatal(err)
	}
	cfg.ShardID, cfg.ReplicaID, cfg.CompactionOverhead, cfg.SnapshotEntries = 1, 1, 2, 20
	if err := nh.StartReplica(map[uint64]dragonboat.Target{1: h.address}, false, func(uint64, uint64) sm.IStateMachine { return &countMachine{} }, cfg); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) stop() {
	h.nh.Close()
	closeEngine(h.t, h.e)
}

// propose waits until the proposal is applied; a leader may have to be elected first.
func (h *host) propose(shard uint64, cmd []byte) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		_, err := h.nh.SyncPropose(ctx, h.nh.GetNoOPSession(shard), cmd)
		if err == nil {
			return
		}
		if !dragonboat.IsTempError(err) || ctx.Err() != nil {
			h.t.Fatal(err)
		}
	}
}

// term is the leader's term, once there is one.
func (h *host) term() ids.Term {
	h.t.Helper()
	for range 2000 {
		if _, term, ok, err := h.nh.GetLeaderID(101); err == nil && ok {
			return ids.Term(term)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-h.t.Context().Done():
		}
	}
	h.t.Fatal("no leader")
	return 0
}

// newHost is a host that can be started, with a free port of the loopback interface.
func newHost(t *testing.T) *host {
	for _, name := range []string{"raft", "rsm", "transport", "grpc", "dragonboat", "logdb", "raftpb", "config", "tan", "registry", "settings", "utils", "server"} {
		logger.GetLogger(name).SetLevel(logger.ERROR)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return &host{t: t, dir: t.TempDir(), address: listener.Addr().String()}
}

// lead begins an epoch as the leader of the present term.
func (h *host) lead(g *group, epoch ids.LeaderEpoch, genesis bool) {
	h.t.Helper()
	g.newTerm(uint64(h.term()))
	if genesis {
		h.propose(101, g.genesis().Cmd[1:])
	}
	h.propose(101, g.epochStart(epoch).Cmd[1:])
}

func TestRaftRunsOnTheEngine(t *testing.T) {
	h := newHost(t)
	h.start()
	g := &group{t: t, e: h.e, log: h.log, binding: testBinding(1), epoch: ids.NoEpoch, clock: 1}
	h.lead(g, 0, true)
	for i := range 60 {
		h.propose(101, g.data(2, 200).Cmd[1:])
		h.propose(1, fmt.Appendf(nil, "%d,", i))
	}
	if h.log.End() != 120 {
		t.Errorf("log end %d", h.log.End())
	}
	want := readAll(t, h.log)
	h.stop()

	h.updates.Store(0)
	h.start()
	h.reads.Store(0)
	h.lead(g, 1, false)
	h.propose(101, g.data(3, 200).Cmd[1:])
	if h.reads.Load() != 0 || h.updates.Load() > 10 {
		t.Errorf("%d batches were read and %d entries applied again after the restart", h.reads.Load(), h.updates.Load())
	}
	if got := readAll(t, h.log); !bytes.HasPrefix(got, want) || h.log.End() != 123 {
		t.Errorf("log end %d", h.log.End())
	}
	h.propose(1, []byte("60,"))
	state, err := h.nh.StaleRead(1, nil)
	if err != nil || !bytes.HasPrefix(state.([]byte), []byte("0,1,2,")) || !bytes.HasSuffix(state.([]byte), []byte("58,59,60,")) {
		t.Errorf("metadata %q, %v", state, err)
	}
	h.stop()
}

func TestRaftLogStartsAtTheLogStart(t *testing.T) {
	h := newHost(t)
	h.start()
	g := &group{t: t, e: h.e, log: h.log, binding: testBinding(1), epoch: ids.NoEpoch, clock: 1}
	h.lead(g, 0, true)
	for range 60 {
		h.propose(101, g.data(2, 200).Cmd[1:])
	}
	h.propose(101, g.logStart(100).Cmd[1:])
	to, err := h.log.SetStart(100)
	if err != nil || to == 0 {
		t.Fatalf("compact to %d, %v", to, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	option := dragonboat.SnapshotOption{OverrideCompactionOverhead: true, CompactionIndex: uint64(to)}
	if _, err := h.nh.SyncRequestSnapshot(ctx, 101, option); err != nil {
		t.Fatal(err)
	}
	for h.log.LogStartPoint().Index != to && ctx.Err() == nil {
		h.propose(101, g.data(1, 10).Cmd[1:]) // gives Raft a step in which it compacts
	}
	end := h.log.End()
	h.stop()
	h.start()
	h.lead(g, 2, false)
	h.propose(101, g.data(1, 10).Cmd[1:])
	if h.log.Start() != 100 || h.log.End() != end+1 || h.log.LogStartPoint().Index != to {
		t.Errorf("start %d, end %d, start point %d, want 100, %d, %d", h.log.Start(), h.log.End(), h.log.LogStartPoint().Index, end+1, to)
	}
	if at := h.log.LogStartPoint(); at.Membership.Addresses[1001] != h.address {
		t.Errorf("membership %+v", at.Membership)
	}
	h.stop()
}
