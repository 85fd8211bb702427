// Package private has the requests that our own tools send and Kafka's clients do not know: what an election would
// lose, what was lost, and what is kept in quarantine.
//
// # Nouns
//
//   - Message: a request or a response whose body is one JSON value.
//   - ReplicaQuery, ElectionQuery, LossQuery, QuarantineQuery, QuarantineRemoval, StoreQuery, CheckpointQuery: what can be asked, each with its answer.
//
// # Concurrency and lifecycle
//
// Messages are values of one owner, as kmsg's are.
//
// # What it does not do
//
// It neither sends nor answers: broker and tools do. Requests between brokers and controllers alone are in
// broker/controller.
//
// Read queries.go first.
package private
