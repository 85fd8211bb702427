// Command bench measures produce and consume of real cairn processes with franz-go on the same machine, and writes docs/benchmarks.md.
// `make bench` runs it.
//
// A Case is one combination of cluster shape, flush mode, acks, record size and number of producers; each is run several times on a fresh
// topic and its median run (by throughput) is reported. Throughput counts acknowledged records; latency is from handing a record to the client to
// its acknowledgement. CPU, memory and bytes written are those of the broker processes, from /proc.
//
// The figures of a run hold for its machine and moment: compare runs that were made alternately, not figures of different days.
//
// Read first: main.go, then produce.go.
package main
