// Package lab replays the experiments this broker exists to pass, on a cluster of real processes, for a person to watch and for tests.
//
// Nouns
//   - Experiment: a name, what it shows, and its steps; one that goes on from another names it, and runs its steps first.
//   - Step: what is done, what must be seen, and the function that does it and tells what was measured.
//   - world: the cluster of one run (controller 100, brokers 1, 2 and 3), and how steps act on it and look at it.
//   - Verdict: how a run ended, step by step.
//
// What a step looks at is what a client or an operator can see: answers to requests, DescribeTopicPartitions, metrics, the output of this
// binary's own commands, and the stored data of a stopped broker. Steps that a client library cannot express (acks=0 has no answer, one
// request for several partitions) speak the protocol themselves, with kmsg.
//
// Concurrency: a run is one goroutine; the few steps that need more start and wait for them. Lifecycle: Run starts the cluster, and ends
// all its processes before it returns. Its directory is removed after a success and kept after a failure.
//
// What it does not do: build the binary, or judge what no experiment names.
//
// Read first: experiment.go, then rows_isr.go.
package lab
