// Package engine stores the logs of all partitions of a broker in one Pebble database, and is the LogDB that
// Raft (dragonboat) saves into: the entries of a partition's Raft group are its data, stored once, keyed by offset.
//
// Nouns:
//   - Engine: the database of one broker, and dragonboat's LogDB over it.
//   - Log: one partition's log, bound to the one Raft replica (shard, replica) that may write it.
//   - entry row: what is kept of a Raft entry next to its payload: enough to restart, to truncate and to send the
//     entry again without reading other rows.
//   - tail: the newest batches in memory, sharing the bytes that Raft holds anyway.
//   - start point: where the Raft log of a replica begins, and what was known there.
//
// Offsets are assigned when an entry is saved, in log order, so that everything is a function of the Raft log alone
// and equal on all replicas. See save.go for the write path and docs/formats.md for the rows.
//
// Concurrency: all exported methods are safe for concurrent use. dragonboat saves a shard from one worker at a time;
// a save of several shards is one Pebble commit. What a save learns becomes visible to readers only after the
// commit has returned ("published", under the shard's mutex), and then the observers hear of it, outside of locks.
//
// Lifecycle: Open, LogDBFactory into the NodeHost, Bind before a replica starts, Release after it was unloaded,
// Close after the NodeHost is closed. A failed commit or sync of the write-ahead log stops the process by a panic:
// after a failed fsync nobody knows what is on the disk, so it is never retried.
//
// The engine does not decide what is committed, who leads, or when data expires; it has no timer and starts no
// goroutine of its own besides Pebble's.
//
// Read save.go first, then encode.go (what an entry means), log.go and reader.go.
package engine
