// Package nodes starts, watches and ends cairn processes, for the lab, for tests and for measurements.
//
// A Node is one process with its properties, ports and data directory, which outlive the process, so a node can be killed and started again.
// A Cluster is a set of nodes under one temporary directory: Single, Three and New make it.
//
// Lifecycle: Start returns once the process is running, WaitReady once it has said that it serves. Close ends all processes by their ids and
// removes the directory, or keeps it where Keep was called. A goroutine per process reads its output into the log file of the node; it ends
// with the process.
//
// It does not make load and it judges nothing.
//
// Read first: cluster.go.
package nodes
