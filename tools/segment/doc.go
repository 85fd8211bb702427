// Package segment writes and reads the files in which Kafka keeps a partition: segments of record batches v2 with an index by offset, one by
// time, and one of aborted transactions. Kafka's DumpLogSegments reads what it writes, and a stopped Kafka's directory can be read by it.
//
// Nouns:
//   - segment: a .log file of batches, named by its first offset, with the .index, .timeindex and .txnindex beside it.
//   - Writer: appends batches of one partition to segments in a directory, as Kafka's LogSegment does.
//   - Scan: the batches of a partition's segments, in order.
//   - Aborted: which batches belong to transactions that were aborted or never ended.
//
// Concurrency: none; a Writer belongs to one goroutine.
//
// What it does not do: read indexes (the batches say all), producer snapshots or leader epoch checkpoints, which Kafka makes anew from the
// batches when it starts on a directory.
//
// Read first: writer.go.
package segment
