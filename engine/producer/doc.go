// Package producer is the state by which a partition recognises repeated and missing batches of idempotent
// producers: for each producer id its epoch, its last five batches and where its open transaction began.
//
// Nouns: Batch (what is appended), Entry (one producer), State (all producers of a partition), Undo (the way back
// of one append), Transactions (which are open in a partition, and so how far its log is stable). Check is the leader's question before an append; Append is what every replica does for every
// batch in its log, so that any replica can lead without reading its log first; Revert undoes appends when the
// log is truncated. State is written and read as a snapshot, and rebuilt from one by appending what followed.
//
// The package has no I/O, clock or goroutine, and nothing in it is safe for concurrent use: State is guarded by
// its partition's log. An Entry is a value; copies do not share anything that changes.
//
// It does not know of transaction coordinators or of the verification of transactions. Read producer.go first.
package producer
