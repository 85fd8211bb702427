package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"cairn/integration/harness"
)

// quick lets brokers be fenced, leases end, and members of groups be missed, soon.
func quick() map[string]string {
	return map[string]string{
		"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300", "replica.lag.time.max.ms": "3000",
		"group.consumer.min.heartbeat.interval.ms": "300", "group.consumer.heartbeat.interval.ms": "500",
		"group.consumer.min.session.timeout.ms": "6000", "group.consumer.session.timeout.ms": "6000", "group.initial.rebalance.delay.ms": "500",
	}
}

// three makes three brokers and a controller, not yet started; props are laid over what is usual on all of them.
func three(binary string, props map[string]string) (*harness.Cluster, error) {
	c, err := harness.Three(binary, nil)
	if err != nil {
		return nil, err
	}
	for _, n := range c.Nodes {
		maps.Copy(n.Props, props)
	}
	return c, nil
}

// on starts a cluster, uses it and ends it. Its data and logs are kept when use returns an error or a check in it failed.
func (r *runner) on(ctx context.Context, c *harness.Cluster, use func() error) (err error) {
	before := r.failed
	defer func() {
		if err != nil || r.failed > before {
			c.Keep()
			fmt.Println("data and logs are kept in", c.Dir)
		}
		err = errors.Join(err, c.Close())
	}()
	startCtx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := c.Start(startCtx); err != nil {
		return err
	}
	return use()
}
