// Package coordtest has a partition in memory, for tests of coordinators: the real runtime over a fake log.
//
// Replica is one replica of a partition; Lead begins a Reign of it, with knobs for what goes wrong. Host ties replicas to a
// Coordinator. It serves tests alone.
package coordtest
