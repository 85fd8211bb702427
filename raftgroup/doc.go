// Package raftgroup runs Raft groups on dragonboat, and is the only package that knows it (the engine knows its log interface). A
// partition group's log entries are the partition's data: the engine assigns their offsets when they are saved, and this package tells
// of the steps of each: saved here, held by another replica, committed.
//
// Nouns
//   - Host: one per process; dragonboat's NodeHost with the engine as log store, and the transport below.
//   - Group: the local replica of a partition's group, of one generation. Propose, Events, membership, Stop.
//   - MachineGroup: the local replica of the metadata group, an ordinary replicated state machine (Machine) with snapshots.
//   - transport: frames between nodes. It sees every message, and this is where the rules live that dragonboat lacks: no commit index
//     above the sender's own save, follower progress, quick catch-up, snapshots that stand at the log start.
//   - peerWatch and elections: brokers notice each other's death and have their groups led again at once.
//
// Concurrency. All methods may be called from any goroutine, save that one group's Propose calls must not overlap. Events come from
// dragonboat's and the engine's workers and hold them up: they must not block. Goroutines of a Host: dragonboat's, one for elections, one
// for compaction, two per watched peer, one per outgoing stream, and the callers of ServeConn. No lock is held while calling out; a replica's lock, the transport's,
// the budget's and a group's in-flight lock are leaves, but that the in-flight lock is never taken under another.
//
// Lifecycle. NewHost, then StartGroup and StartMachine; Group.Stop returns when no save of the replica can come any more, which is what
// the next owner of the data waits for. Host.Close stops everything and leaves the engine open.
//
// It does not listen or resolve names (Config.Dial, Host.ServeConn), knows neither leader epochs nor in-sync replicas, and decides
// no failover: who hears of a dead peer calls Host.FailOver.
//
// Read group.go first, then replica.go (what happens to a message), link.go (streams), chunk.go (snapshots), inflight.go (the bound on
// proposals), elections.go.
package raftgroup
