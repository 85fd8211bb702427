// Package txn decides about transactions: it is the state machine of one partition of __transaction_state, which the
// coordinator of the transactional ids there keeps.
//
// # Nouns
//
//   - Transaction: a transactional id's producer and its present or last transaction; the value of a record.
//   - State: where that stands, with Kafka's names and numbers.
//   - Machine: all transactional ids of one partition. Requests are its methods; what they decide, they append as records.
//   - Markers: the end of a transaction as its partitions are to hear of it.
//
// # Concurrency and lifecycle
//
// The runtime in broker/coordinator calls the machine from one goroutine at a time, feeds it the log, and tells it when it
// leads. An operation changes nothing by itself: it decides from the present state, appends records, and these change the
// state when they are replayed right after, on the leader as on any other replica. So what is in the log is all there is,
// but for the markers that are still to be written, which a new coordinator writes again.
//
// Requests are answered when what they appended, and all before it, is committed. Errors wait the same way, since the state
// that they were decided from may not be committed yet.
//
// # What it does not do
//
// It sends nothing and holds no clock: markers go to the function that Config names. Whether a partition exists, and who
// may write to it, is the caller's to know.
//
// Read transaction.go first, then end.go.
package txn
