package broker

import (
	"fmt"
	"testing"
	"time"

	"cairn/engine"
)

// A compacted log that is written for ever is rid of its entries time and again; its records, and who is in sync, are as before.
func TestACompactedPartitionIsRidOfItsEntries(t *testing.T) {
	const most = 300
	c := (&testCluster{props: []string{"log.cleaner.backoff.ms=50", fmt.Sprint("log.cleaner.generation.entries=", most)}}).run(t, 3)
	defer c.close(t)
	cl := c.client(t)
	createCompacted(t, cl, "t", 3, "min.insync.replicas=2")
	model, longest := map[string]string{}, time.Duration(0)
	for round := 0; c.partition("t").Generation < 3; round++ {
		if round > 2000 {
			t.Fatalf("generation %d after %d rounds of 4 batches", c.partition("t").Generation, round)
		}
		began := time.Now()
		produceKeys(t, cl, "t", 0, 100, fmt.Sprint("r", round), model)
		longest = max(longest, time.Since(began))
	}
	t.Logf("four batches, one after the other, took %v at most", longest)
	c.await(t, "all in sync and voters", "t", whole)
	awaitTrue(t, func() bool {
		produceKeys(t, cl, "t", 0, 1, "end", model)
		return c.replicasEndIn(t, "t", 3, model, func(l *engine.Log, records int) bool {
			return records <= len(model)+50 && int64(l.LastIndex()) <= 2*most
		})
	})
	c.mustVerify(t, "t")
	mustConsumeValues(t, c, "t", model)
}
