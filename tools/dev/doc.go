// Package dev is `cairn dev`: a cluster of real processes on this machine, for trying things, with a prompt that kills, freezes and starts nodes.
//
// Run starts the nodes (tools/lab/nodes), prints where they are, obeys lines of standard input, and stops and removes all of it at the end. Nodes are
// touched by Run's goroutine alone; a goroutine reads the input, and one per life of a node tells of its end.
//
// Read dev.go first.
package dev
