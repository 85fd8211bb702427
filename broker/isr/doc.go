// Package isr is the leader's side of replication during one reign: which replicas are in sync, how far consumers may
// read, and when an acks=all request may be answered. It has no I/O, clock or goroutine.
//
// Nouns: a View is the partition's state in one image of the metadata log. A Leader is one reign's bookkeeping: it is told
// positions, views and the time, and says where the high watermark is. A Proposal is the ISR it asks the controller for.
// A MemberChange is the next change of the Raft group's membership.
//
// Concurrency: a Leader belongs to whoever calls it, one call at a time.
//
// Lifecycle: New when the image shows the reign and the leader has saved its epoch-start entry; dropped when View says that
// the reign is over. A later reign is a new Leader, which starts with the high watermark of the one before.
//
// What it does not do: it sends nothing, and does not know Raft indexes: positions are end offsets (exclusive).
//
// Read leader.go first.
package isr
