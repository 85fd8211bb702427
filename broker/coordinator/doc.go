// Package coordinator runs state machines over the partitions of an internal topic: the group coordinator over
// __consumer_offsets, the transaction coordinator over __transaction_state.
//
// A Machine is the state of one partition. It decides what an operation appends (Effects), and it changes its state as
// records are replayed to it: on followers as the high watermark passes them, on the leader as soon as an operation has
// appended them. So every replica of the partition holds the state, and a new leader reads only the tail.
//
// The nouns: Machine, Record, Effects, Coordinator. Machines are pure: they hold no clock, do no I/O and start nothing;
// one goroutine at a time calls them. They live in broker/group and broker/txn, which do not import package broker.
//
// Read machine.go first.
package coordinator
