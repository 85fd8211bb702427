// Package walk is a seeded random walk over the replication of one partition. It has tests only: they drive the real
// deciding code, isr.Leader and controller.Apply with Decide and Elect, through appends, saves, replication, elections,
// crashes that lose the unsaved tail, cuts, false fencing, late, repeated and reordered messages, a changing minimum and
// generation moves. Raft inside a generation is taken as correct and modelled coarsely: votes, terms and log matching are
// kept, single messages are not.
//
// The walk checks that no exposed record is lost without an unclean election, that (leader epoch, offset) names one record,
// that epochs only grow, and, once everything has healed, that all replicas are in sync again and every acknowledged record
// is either readable or in a reported loss, and not in both. With a rule of docs/generations.md switched off it must find a
// violation.
//
//	go test ./broker/walk -walk.steps=1000000 -walk.seed=7
//
// Read world_test.go first.
package walk
