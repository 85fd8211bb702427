// Package coordinator runs state machines over the partitions of an internal topic: the group coordinator over
// __consumer_offsets, the transaction coordinator over __transaction_state.
//
// A Machine is the state of one partition. It decides what an operation appends (Effects), and it changes its state as
// records are replayed to it: on followers as the high watermark passes them, on the leader as soon as an operation has
// appended them. So every replica of the partition holds the state, and a new leader reads only the tail.
//
// The nouns: Machine, Record, Effects, Coordinator, shard (one partition of it). Machines are pure: they hold no clock, do no I/O and start nothing;
// one goroutine at a time calls them. They live in broker/group and broker/txn, which do not import package broker.
//
// Package broker tells a Coordinator of replicas, high watermarks and reigns (Log, Reign), and submits operations. They
// wait in a bounded queue for each shard, and a few workers run the shards that have something to do; a shard is run by
// one of them at a time. Replies come once the high watermark has passed what was appended before them. Close ends it all.
//
// It does not compact the topic: loading reads the whole log.
//
// Read machine.go first, then shard.go.
package coordinator
