// Package batch reads, checks and builds Kafka record batches of format version 2, the unit in which records are
// produced, replicated, stored and fetched.
//
// # Nouns
//
//   - Header: the fixed 61 bytes in front of every batch.
//   - Record: one message inside a batch; Records iterates over them and opens compressed batches.
//   - Rules, Validate: what a partition leader demands of a batch sent by a client, and the batch it appends for it.
//   - Builder: makes batches, for tests, tools and control records.
//   - Codec: the compression of the records behind the header.
//
// # Concurrency and lifecycle
//
// All functions may be called from any goroutine. There is no state but pools of decoders and encoders, and a gate
// which lets only as many goroutines open compressed data at once as there are processors: it is CPU work, and the
// gate bounds the memory of decoders. Nothing here does I/O, reads a clock or starts a goroutine.
//
// # What it does not do
//
// It assigns no offsets, knows no producer state, and does not read the older message formats 0 and 1.
//
// Read header.go first, then walk.go (one pass over the records), then validate.go.
package batch
