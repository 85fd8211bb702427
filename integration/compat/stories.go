package main

import (
	"context"
	"errors"
	"strings"
)

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
func (r *runner) play(ctx context.Context, binary, shape string, make func(*story) []row) error {
	c, err := three(binary, quick())
	if err != nil {
		return err
	}
	return r.on(ctx, c, func() (err error) {
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
	})
}
