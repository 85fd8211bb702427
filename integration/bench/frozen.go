package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	frozenCase  = "frozen follower"
	frozenFor   = 60 * time.Second
	frozenQuick = 12 * time.Second // longer than the session timeout, so that acks=all goes on
	frozenAfter = time.Second      // of full load
)

// frozen measures what a node that stands still costs the others: their memory while one of three nodes is stopped under full load.
func (b *bench) frozen(ctx context.Context) (err error) {
	c, err := b.started(ctx, 3, "always")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	topic, err := b.topic(ctx, c)
	if err != nil {
		return err
	}
	length := frozenFor
	if b.length < time.Second*3 {
		length = frozenQuick
	}
	m, err := startMeter(ctx, c)
	if err != nil {
		return err
	}
	pc := produceCase{Nodes: 3, Flush: "always", Acks: "all", RecordBytes: 1024, Producers: 1}
	froze := make(chan error, 1)
	go func() { froze <- freeze(ctx, c.Nodes[2], length) }()
	p, err := pc.load(ctx, c.Bootstrap(), topic, frozenAfter+length)
	if err := errors.Join(err, <-froze); err != nil {
		return err
	}
	if p.CPUPerGB, p.PeakRSS, err = m.finish(p.Bytes); err != nil {
		return err
	}
	fmt.Printf("%s for %v: %.0f MB/s, peak RSS %d MiB\n", frozenCase, length, p.mbPerSecond(), p.PeakRSS>>20)
	b.report.froze(length, p)
	return nil
}

// freezer is a node that can be stopped and go on.
type freezer interface {
	Freeze() error
	Thaw() error
}

func freeze(ctx context.Context, n freezer, length time.Duration) error {
	if !sleep(ctx, frozenAfter) {
		return ctx.Err()
	}
	if err := n.Freeze(); err != nil {
		return err
	}
	sleep(ctx, length)
	return n.Thaw()
}

// sleep waits so long; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
