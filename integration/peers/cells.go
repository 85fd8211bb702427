package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
)

// session is one system that runs, in one round.
type session struct {
	sys     system
	client  client
	srv     servers
	o       options
	topics  int
	written map[int]written // by the size of records, for reading them again
	figures figures         // of the step that is under way
}

// written is what a topic holds.
type written struct {
	topic string
	*tally
}

func (s *session) note(cell, metric string, value float64) { s.figures.put(cell, metric, value) }

// topic makes one.
func (s *session) topic(ctx context.Context) (string, error) {
	s.topics++
	name := fmt.Sprintf("peers%d", s.topics)
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return name, until(ctx, func() error { return s.client.create(ctx, name) })
}

func (s *session) drop(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return until(ctx, func() error { return s.client.drop(ctx, topic) })
}

// full is the load that is compared first and that is read: one producer as fast as it can.
func full(bytes int) produceCell {
	return produceCell{bytes: bytes, producers: 1, acks: "all", linger: 5 * time.Millisecond}
}

func (s *session) warmUp(ctx context.Context) error {
	topic, err := s.topic(ctx)
	if err != nil {
		return err
	}
	if _, err := s.client.produce(ctx, topic, full(1024), s.sys.warmTime()); err != nil {
		return err
	}
	return s.drop(ctx, topic)
}

func (s *session) produce(ctx context.Context, name string, p produceCell) error {
	topic, err := s.topic(ctx)
	if err != nil {
		return err
	}
	before, err := used(s.srv.pids())
	if err != nil {
		return err
	}
	t, err := s.client.produce(ctx, topic, p, s.o.length)
	if err != nil {
		return err
	}
	after, err := used(s.srv.pids())
	if err != nil {
		return err
	}
	if err := s.drop(ctx, topic); err != nil {
		return err
	}
	s.note(name, "MB/s", t.mbPerSecond())
	s.note(name, "records/s", float64(t.records)/t.elapsed.Seconds())
	s.note(name, "p50 ms", t.latency.quantile(50))
	s.note(name, "p99 ms", t.latency.quantile(99))
	s.note(name, "CPU s/GB", (after.cpu-before.cpu).Seconds()/(float64(t.bytes)/1e9))
	s.note(name, "RSS MiB", float64(after.rss>>20))
	return nil
}

// readWhileWritten notes what a consumer at the end of the log gets, and leaves the records for cold.
func (s *session) readWhileWritten(ctx context.Context, size int) error {
	topic, err := s.topic(ctx)
	if err != nil {
		return err
	}
	wrote, read, err := s.tail(ctx, topic, full(size), s.o.length)
	if err != nil {
		return err
	}
	name := tailCell(size)
	s.note(name, "MB/s", read.mbPerSecond())
	s.note(name, "p50 ms", read.latency.quantile(50))
	s.note(name, "p99 ms", read.latency.quantile(99))
	s.written[size] = written{topic, wrote}
	return nil
}

// tail reads what is written meanwhile, from the first record to the last.
func (s *session) tail(ctx context.Context, topic string, p produceCell, length time.Duration) (wrote, read *tally, err error) {
	read = &tally{latency: newLatencies()}
	var records, bytes, goal atomic.Int64
	goal.Store(-1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := time.Now()
	done := make(chan error, 1)
	go func() {
		done <- s.client.consume(ctx, topic, func() bool { return records.Load() == goal.Load() }, func(value []byte) {
			bytes.Add(int64(len(value)))
			if n := records.Add(1); p.sampled(int(n)) && time.Since(begun) > length/4 { // what comes first finds everything cold
				read.latency.add(age(value))
			}
		})
	}()
	wrote, err = s.client.produce(ctx, topic, p, length)
	if err != nil {
		cancel()
		return nil, nil, errors.Join(err, <-done)
	}
	goal.Store(wrote.records)
	if err := <-done; err != nil {
		return nil, nil, fmt.Errorf("reading, after %d of %d records: %w", records.Load(), wrote.records, err)
	}
	read.records, read.bytes, read.elapsed = records.Load(), bytes.Load(), time.Since(begun)
	return wrote, read, nil
}

// latencyRate is how many records a second the latency from end to end is measured at.
const latencyRate = 1000

// latency begins when the disk has what was written before: it is that of the rate, not of the loads before it.
func (s *session) latency(ctx context.Context) error {
	syscall.Sync()
	topic, err := s.topic(ctx)
	if err != nil {
		return err
	}
	_, read, err := s.tail(ctx, topic, produceCell{bytes: 1024, producers: 1, acks: "all", rate: latencyRate}, s.o.latencyLength())
	if err != nil {
		return err
	}
	for _, q := range quantiles() {
		s.note(latencyCell(), quantileText(q), read.latency.quantile(q))
	}
	return s.drop(ctx, topic)
}

// restart measures from the start of the processes, on used disks that nothing is in memory of, to the first acknowledged record; then what they use when
// idle, and how fast all of what the steps before have left is read. A topic that is missing, as when a run is continued, is written here.
func (s *session) restart(ctx context.Context) error {
	topic, err := s.topic(ctx)
	if err != nil {
		return err
	}
	for _, size := range []int{1024, 100} {
		if _, ok := s.written[size]; !ok {
			if err := s.write(ctx, size); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(s.srv.stop(), forget(s.srv.dir())); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	begun := time.Now()
	if err := s.srv.start(); err != nil {
		return err
	}
	if err := until(limited, func() error { return s.client.probe(limited, topic, 0) }); err != nil {
		return err
	}
	s.note("start", "ms", float64(time.Since(begun).Milliseconds()))
	if err := s.srv.wait(limited); err != nil {
		return err
	}
	if err := s.idle(ctx); err != nil {
		return err
	}
	for _, size := range []int{1024, 100} {
		if err := s.readCold(ctx, size); err != nil {
			return fmt.Errorf("cold %d B: %w", size, err)
		}
	}
	return nil
}

// idleTime is how long servers have nothing to do before their memory is looked at, and then while their processor time is.
const idleTime = 2 * time.Second

func (s *session) idle(ctx context.Context) error {
	var at [2]usage
	var err error
	for i := range at {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(idleTime):
		}
		if at[i], err = used(s.srv.pids()); err != nil {
			return err
		}
	}
	s.note("idle", "RSS MiB", float64(at[1].rss>>20))
	s.note("idle", "cores", (at[1].cpu-at[0].cpu).Seconds()/idleTime.Seconds())
	return nil
}

func (s *session) write(ctx context.Context, size int) error {
	topic, err := s.topic(ctx)
	if err != nil {
		return err
	}
	t, err := s.client.produce(ctx, topic, full(size), s.o.length)
	s.written[size] = written{topic, t}
	return err
}

func (s *session) readCold(ctx context.Context, size int) error {
	w := s.written[size]
	for p := range partitions {
		if err := until(ctx, func() error { _, err := s.client.leader(ctx, w.topic, p); return err }); err != nil {
			return err
		}
	}
	var got atomic.Int64
	begun := time.Now()
	if err := s.client.consume(ctx, w.topic, func() bool { return got.Load() >= w.records }, func([]byte) { got.Add(1) }); err != nil {
		return fmt.Errorf("after %d of %d records: %w", got.Load(), w.records, err)
	}
	s.note(fmt.Sprintf("cold %d B", size), "MB/s", float64(w.bytes)/1e6/time.Since(begun).Seconds())
	return s.drop(ctx, w.topic)
}
