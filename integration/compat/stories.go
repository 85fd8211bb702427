package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
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

// stories plays all of them, or the one asked for.
func (r *runner) stories(ctx context.Context, binary string) error {
	for _, story := range []struct {
		name string
		rows func(*story) []row
	}{
		{"replicas and elections", (*story).replicaRows},
		{"administration", (*story).adminRows},
		{"groups of the consumer protocol", r.consumerRows},
		{"transactions", (*story).transactionRows},
		{"segment files", r.segmentRows},
	} {
		if r.only != "" && r.only != story.name {
			continue
		}
		if err := r.play(ctx, binary, story.name, story.rows); err != nil {
			return err
		}
	}
	if r.only == "" || r.only == idempotenceStory {
		return r.idempotence(ctx, binary)
	}
	return nil
}

// play starts three brokers and a controller, plays the rows that make gives, and ends the cluster.
func (r *runner) play(ctx context.Context, binary, shape string, make func(*story) []row) (err error) {
	c, err := harness.Three(binary, nil)
	if err != nil {
		return err
	}
	for _, n := range c.Nodes {
		maps.Copy(n.Props, quick())
	}
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
	box, err := openToolbox(ctx, r.classes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.close()) }()
	s := &story{bench: &bench{toolbox: box, binary: binary, at: strings.Join(c.Bootstrap(), ",")}, ctx: ctx, c: c}
	for _, row := range make(s) {
		r.check(shape, row.tool, row.name, row.do)
	}
	for _, end := range s.ends {
		err = errors.Join(err, end())
	}
	return err
}
