package raftgroup

import (
	"fmt"
	"path/filepath"
	"sync"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"

	"cairn/internal/ids"
)

// workers per stage of dragonboat. A step worker saves the entries of all its ready groups together, so that fewer workers mean larger
// commits, and more workers more of them at once; four keep two to sixteen cores and a disk busy.
const workers = 4

// Host runs the Raft groups of one node.
type Host struct {
	cfg       Config
	nh        *dragonboat.NodeHost
	transport *transport
	watch     *peerWatch
	elections *elections
	compactor *compactor
	marks     *watermarks
	pacer     *pacer
	budget    *budget // bytes in flight over all groups

	mu       sync.RWMutex
	closed   bool                          // guarded by mu
	replicas map[ids.ShardID]*localReplica // guarded by mu
}

// NewHost starts a host without groups. Close it after all groups were stopped, or to stop them all at once.
func NewHost(cfg Config) (*Host, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	forwardLogs(cfg.Logger)
	adjustDragonboat()
	if err := adoptHostDir(cfg.Dir); err != nil {
		return nil, err
	}
	h := &Host{cfg: cfg, replicas: map[ids.ShardID]*localReplica{}, budget: newBudget(cfg.TotalInflightBytes)}
	h.transport = newTransport(h)
	h.watch = newPeerWatch(h)
	h.elections = newElections(h)
	h.compactor = newCompactor(h)
	h.marks = newWatermarks(h)
	h.pacer = newPacer(h.transport)
	nh, err := dragonboat.NewNodeHost(h.nodeHostConfig())
	if err == nil && nh == nil { // it swallows panics of its own that are no errors, as those about its small files
		err = fmt.Errorf("a file in %s is damaged, see the lines before; empty the data directory, and everything is copied anew from the other nodes", cfg.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("raftgroup: start: %w", err)
	}
	h.nh = nh
	h.elections.start()
	h.compactor.start()
	return h, nil
}

func (h *Host) nodeHostConfig() config.NodeHostConfig {
	logDB := config.GetTinyMemLogDBConfig() // describes the default LogDB, which is not used; Shards only spreads metrics
	logDB.Shards = workers
	return config.NodeHostConfig{
		NodeHostDir:         filepath.Clean(h.cfg.Dir),
		RTTMillisecond:      uint64(h.cfg.TickInterval.Milliseconds()),
		RaftAddress:         h.cfg.NodeID.RaftAddress(),
		RaftEventListener:   raftEvents{h},
		SystemEventListener: systemEvents{h},
		MaxSendQueueSize:    uint64(h.cfg.MaxSendQueueBytes),
		MaxReceiveQueueSize: uint64(h.cfg.MaxReceiveQueueBytes),
		Expert: config.ExpertConfig{
			LogDBFactory:     h.cfg.Engine.LogDBFactory(),
			TransportFactory: transportFactory{h.transport},
			LogDB:            logDB,
			Engine:           config.EngineConfig{ExecShards: workers, CommitShards: 1, ApplyShards: workers, SnapshotShards: workers, CloseShards: workers},
		},
	}
}

// Close stops all groups and waits for everything the host started. The engine stays open. A second call is a no-op.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	h.mu.Unlock()
	h.watch.close()
	h.elections.close()
	h.compactor.close()
	h.pacer.close()
	h.transport.shut()
	h.marks.close()
	h.nh.Close() // panics on a failure of the LogDB's close, which ours has not
	for _, lr := range h.localReplicas() {
		lr.markUnloaded()
		if lr.group != nil {
			lr.group.release()
		}
		h.remove(lr)
	}
	return nil
}

// replica returns the replica of a shard that runs here, or nil.
func (h *Host) replica(s ids.ShardID) *localReplica {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.replicas[s]
}

func (h *Host) localReplicas() []*localReplica {
	h.mu.RLock()
	defer h.mu.RUnlock()
	all := make([]*localReplica, 0, len(h.replicas))
	for _, lr := range h.replicas {
		all = append(all, lr)
	}
	return all
}

func (h *Host) add(lr *localReplica) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	if other := h.replicas[lr.shard]; other != nil {
		return fmt.Errorf("raftgroup: replica %d of shard %d runs already", other.self, lr.shard)
	}
	h.replicas[lr.shard] = lr
	return nil
}

func (h *Host) remove(lr *localReplica) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.replicas[lr.shard] == lr {
		delete(h.replicas, lr.shard)
	}
}

// raftEvents receives dragonboat's leader announcements, all from one goroutine.
type raftEvents struct{ h *Host }

// LeaderUpdated implements raftio.IRaftEventListener.
func (e raftEvents) LeaderUpdated(i raftio.LeaderInfo) {
	if lr := e.h.replica(ids.ShardID(i.ShardID)); lr != nil && uint64(lr.self) == i.ReplicaID {
		lr.announce(ids.ReplicaID(i.LeaderID), ids.Term(i.Term))
	}
}

// systemEvents receives dragonboat's other events, from that same goroutine; workers wait for it, so nothing here blocks.
type systemEvents struct{ h *Host }

// NodeUnloaded implements raftio.ISystemEventListener.
func (e systemEvents) NodeUnloaded(i raftio.NodeInfo) {
	if lr := e.h.replica(ids.ShardID(i.ShardID)); lr != nil && uint64(lr.self) == i.ReplicaID {
		lr.markUnloaded()
	}
}

// The other events are of no use here.
func (systemEvents) NodeHostShuttingDown()                       {}
func (systemEvents) NodeDeleted(raftio.NodeInfo)                 {}
func (systemEvents) NodeReady(raftio.NodeInfo)                   {}
func (systemEvents) MembershipChanged(raftio.NodeInfo)           {}
func (systemEvents) ConnectionEstablished(raftio.ConnectionInfo) {}
func (systemEvents) ConnectionFailed(raftio.ConnectionInfo)      {}
func (systemEvents) SendSnapshotStarted(raftio.SnapshotInfo)     {}
func (systemEvents) SendSnapshotCompleted(raftio.SnapshotInfo)   {}
func (systemEvents) SendSnapshotAborted(raftio.SnapshotInfo)     {}
func (systemEvents) SnapshotReceived(raftio.SnapshotInfo)        {}
func (systemEvents) SnapshotRecovered(raftio.SnapshotInfo)       {}
func (systemEvents) SnapshotCreated(raftio.SnapshotInfo)         {}
func (systemEvents) SnapshotCompacted(raftio.SnapshotInfo)       {}
func (systemEvents) LogCompacted(raftio.EntryInfo)               {}
func (systemEvents) LogDBCompacted(raftio.EntryInfo)             {}
