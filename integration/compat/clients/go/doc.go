// Command compat drives Go clients for the compatibility run: compat LIBRARY serve BOOTSTRAP, or compat LIBRARY member BOOTSTRAP GROUP TOPIC, where
// LIBRARY is franz, sarama or segment. ../README.md describes orders and replies. It is a module of its own, so that none of the clients is a
// dependency of cairn.
//
// A library is a table of operations, one for each order, and a member of a group. An order is carried out after the other; a member prints from
// several goroutines (printer) and ends with SIGTERM. It judges nothing: that is the runner's.
//
// Read first: main.go, then franz.go.
package main
