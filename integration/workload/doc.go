// Package workload makes load with franz-go and compares what was acknowledged with what can be read.
//
// A Load produces numbered records to every partition of a topic until it is stopped. A Ledger remembers each acknowledged record by
// partition, number and offset, and how long acknowledgements paused. Read fetches everything a topic holds, and Ledger.Check finds
// acknowledged records that are lost, duplicated, reordered, changed or at another offset.
//
// Concurrency: a Load has one goroutine per partition, ended by Stop. A Ledger is safe for concurrent use.
//
// It starts no processes; see harness.
//
// Read first: ledger.go.
package workload
