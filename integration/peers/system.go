package main

import (
	"context"
	"time"
)

// partitions is how many a topic has; with NATS it is as many streams.
const partitions = 12

// startLimit bounds the start of a system, stopLimit its end.
const (
	startLimit = 2 * time.Minute
	stopLimit  = time.Minute
)

// system is one way to run a broker.
type system struct {
	name  string // cairn, Kafka, NATS
	mode  string // what it does before it acknowledges
	safe  bool   // a record is on the disk of each replica that counts before it is acknowledged
	nodes int
	open  func(dir string, nodes int, safe bool) (servers, error)
	dial  func(at []string, s system) (client, error)
}

func (s system) String() string { return s.name + ", " + s.mode }

// servers are the processes of a system, each with a number from 0 on. Data outlives a process.
type servers interface {
	// start starts all that do not run, and does not wait until they serve.
	start() error
	// wait returns when all serve clients.
	wait(ctx context.Context) error
	// stop ends all as an operator would.
	stop() error
	kill(node int) error
	// crash kills all.
	crash() error
	// close kills what runs, and removes what open has made outside of its directory.
	close() error
	addresses() []string
	pids() []int
	// dir is where the data is.
	dir() string
	// logTails are the last lines that each has written.
	logTails() string
}

// client makes load on a system.
type client interface {
	create(ctx context.Context, topic string) error
	// drop deletes the topic, so that the disk does not fill.
	drop(ctx context.Context, topic string) error
	// produce writes until the length is over and all is answered.
	produce(ctx context.Context, topic string, p produceCell, length time.Duration) (*tally, error)
	// consume reads from the beginning until stop says so, and calls got for each record.
	consume(ctx context.Context, topic string, stop func() bool, got func(value []byte)) error
	// leader is the node that leads a partition.
	leader(ctx context.Context, topic string, partition int) (int, error)
	// probe writes one record to the partition, with acks of all replicas.
	probe(ctx context.Context, topic string, partition int) error
	close()
}

// systems are all that take part, for a number of nodes. Those that are safe stand beside each other, and so do the others.
func systems(nodes int) []system {
	return []system{
		{"cairn", "flush always", true, nodes, openCairn, dialWire},
		{"Kafka", "flush.messages=1", true, nodes, openKafka, dialWire},
		{"NATS", "sync_interval always", true, nodes, openNATS, dialNATS},
		{"cairn", "flush os", false, nodes, openCairn, dialWire},
		{"Kafka", "defaults", false, nodes, openKafka, dialWire},
		{"NATS", "defaults", false, nodes, openNATS, dialNATS},
	}
}
