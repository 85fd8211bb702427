// Package controller keeps the cluster's metadata: brokers, topics, the state of partitions, dynamic configs and producer
// id blocks.
//
// Nouns: an Image is the metadata at one position of the metadata log, immutable. A Command changes it; Apply is the pure
// transition function. The Store is the state machine of the metadata group on every node and publishes the newest Image.
// The Controller runs on nodes with the controller role and, while its node leads the metadata group, turns requests into
// commands and watches the brokers' sessions. The Client is a broker's side: it finds the active controller, registers,
// heartbeats, keeps the lease, and sends requests.
//
// Concurrency: images may be read by anybody for as long as they like. Store.Apply is called by Raft, one entry at a time.
// Controller.Handle may be called by many goroutines; commands are checked again where they are applied, so requests do
// not exclude each other, config changes apart (a new value is computed from the present one). Controller and Client each
// own the goroutines they start and wait for them in Close.
//
// Lifecycle: NewStore, New, start the metadata group with the store as its machine and Controller.LeaderChanged as its
// listener, Controller.Start; on brokers then NewClient, Register, Start. Close in the opposite order.
//
// What it does not do: it listens on no port (package broker gives it a Conn per control connection), decides nothing about
// ISR, ELR or generations yet, and moves no data.
//
// Read image.go first, then state.go.
package controller
