package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

// startOnce starts a node that has a topic already and measures from the start of its process to its ready line and to the first
// acknowledged record of a client that tries without pause; then its memory when idle.
func startOnce(ctx context.Context, c *harness.Cluster) (ready, first time.Duration, rss int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		return 0, 0, 0, err
	}
	if err := workload.CreateTopic(ctx, c.Bootstrap(), "first", 1, 1, nil); err != nil {
		return 0, 0, 0, err
	}
	node := c.Nodes[0]
	if err := node.Stop(time.Minute); err != nil {
		return 0, 0, 0, err
	}
	opts := append(workload.ClientOptions(c.Bootstrap()), kgo.DefaultProduceTopic("first"), kgo.ProducerLinger(0),
		kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond }), kgo.MetadataMinAge(10*time.Millisecond))
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return 0, 0, 0, err
	}
	defer cl.Close()
	begun := time.Now()
	if err := node.Start(); err != nil {
		return 0, 0, 0, err
	}
	if _, err := cl.ProduceSync(ctx, &kgo.Record{Value: []byte("first")}).First(); err != nil {
		return 0, 0, 0, err
	}
	first = time.Since(begun)
	if ready, err = node.WaitReady(ctx); err != nil {
		return 0, 0, 0, err
	}
	u, err := node.Usage()
	return ready, first, u.RSS, err
}
