// Package network stands between the nodes of a test cluster, so that a test can cut and slow down what they send each other. It is a proxy
// and needs no rights and no kernel module.
//
// A Network has one front for each node: a listener that hands every connection on to the node. Nodes learn each other's fronts as
// addresses, clients the nodes' own, so that a node that is cut off from the others goes on serving clients. Who has opened a connection is
// found from the process that owns its other end, so each direction of each pair of nodes, a way, can be treated by itself.
//
// A cut way delivers nothing and loses nothing: what is under way waits, as TCP would send it again, and the sender blocks when the buffers
// on the way are full. The end of a connection does not get through either. What waits arrives when the way is whole again, or the
// connections are reset then; both happen to real ones.
//
// Concurrency: a Network is safe for concurrent use. Each connection has five goroutines, each front one; Close ends all of them.
//
// Read first: network.go.
package network
