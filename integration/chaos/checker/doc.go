// Package checker judges what clients saw of a cluster while it was given faults, after everything is up again.
//
// A History is what clients did and saw, in order: sends, their outcomes, polls. A Final is what there is in the end: the log as a reader gets
// it, what each replica has stored, what is reported lost and what is kept of it. Check compares the two and returns Findings; the names of their
// kinds are those of Jepsen's Kafka workload where it has one. A history that is right gives none.
//
// Each check is a function in a table (check.go); what a new kind of load needs to be judged by is another field of Event and another
// line there.
//
// It has no I/O, clock or goroutine, but for reading and writing histories as lines of JSON. Nothing here is safe for concurrent use; a
// Recorder, which clients write to, is.
//
// Read first: history.go, then check.go.
package checker
