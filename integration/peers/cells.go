package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// sampleEvery is how many records lie between two whose latency is measured; a paced load has all measured.
const sampleEvery = 16

// produceCell is one load of producers.
type produceCell struct {
	bytes     int
	producers int
	acks      string        // cairn, Kafka: 1 or all
	linger    time.Duration // cairn, Kafka
	sync      bool          // NATS: each producer waits for the answer before it sends the next
	rate      int           // records per second of each producer; 0: as many as the client takes
}

// tally is what a load gave.
type tally struct {
	records, bytes int64
	elapsed        time.Duration
	latency        *latencies
}

func (t *tally) mbPerSecond() float64 { return float64(t.bytes) / 1e6 / t.elapsed.Seconds() }

// latencies is safe for concurrent use.
type latencies struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram // guarded by mu; microseconds
}

const longestLatency = 10 * time.Minute

func newLatencies() *latencies {
	return &latencies{h: hdrhistogram.New(1, longestLatency.Microseconds(), 3)}
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.h.RecordValue(max(1, min(d, longestLatency).Microseconds())) // within its bounds
}

// quantile is in milliseconds.
func (l *latencies) quantile(percent float64) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return float64(l.h.ValueAtQuantile(percent)) / 1000
}

// stamped is a value that begins with the time when it was to be sent; the rest is random, so that nothing compresses it.
func stamped(pattern []byte, at time.Time) []byte {
	value := append([]byte(nil), pattern...)
	binary.BigEndian.PutUint64(value, uint64(at.UnixNano()))
	return value
}

func age(value []byte) time.Duration {
	return time.Since(time.Unix(0, int64(binary.BigEndian.Uint64(value))))
}

// pace waits until record n is due and returns when that was, or now without a rate: what is late counts from when it was due.
func (p produceCell) pace(begun time.Time, n int) time.Time {
	if p.rate == 0 {
		return time.Now()
	}
	due := begun.Add(time.Duration(n) * time.Second / time.Duration(p.rate))
	if d := time.Until(due); d > 0 {
		<-time.After(d)
	}
	return due
}

// sampled says whether the latency of record n is measured.
func (p produceCell) sampled(n int) bool { return p.rate > 0 || n%sampleEvery == 0 }

// session is one system that runs, in one round.
type session struct {
	sys    system
	client client
	srv    servers
	o      options
	topics int
	notes  func(cell, metric string, value float64)
}

// topic makes one.
func (s *session) topic(ctx context.Context) (string, error) {
	s.topics++
	name := fmt.Sprintf("peers%d", s.topics)
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return name, until(ctx, func() error { return s.client.create(ctx, name) })
}

// produceCells are the loads for a system; those of the key cells alone when the run is short.
func (s *session) produceCells() map[string]produceCell {
	cells := map[string]produceCell{}
	for _, size := range []int{1024, 100} {
		for _, producers := range []int{1, 50} {
			at := fmt.Sprintf("produce %d B, %d producer(s), ", size, producers)
			if s.sys.name == "NATS" {
				cells[at+"async"] = produceCell{bytes: size, producers: producers}
				cells[at+"sync"] = produceCell{bytes: size, producers: producers, sync: true}
				continue
			}
			for _, acks := range []string{"1", "all"} {
				for _, linger := range []time.Duration{0, 5 * time.Millisecond} {
					cells[at+fmt.Sprintf("acks=%s, linger %d", acks, linger.Milliseconds())] = produceCell{bytes: size, producers: producers, acks: acks, linger: linger}
				}
			}
		}
	}
	return cells
}

// keyCell says whether a cell of the produce loads is among those that are compared: acks=all and linger 5 beside asynchronous publishing.
func keyCell(name string) bool {
	p := produceKey(name)
	return p == "acks=all, linger 5" || p == "async"
}

// produceKey is how a produce cell sends.
func produceKey(name string) string {
	var size, producers int
	if n, _ := fmt.Sscanf(name, "produce %d B, %d producer(s),", &size, &producers); n != 2 {
		return ""
	}
	head := fmt.Sprintf("produce %d B, %d producer(s), ", size, producers)
	return name[len(head):]
}

// run takes the system through all cells.
func (s *session) run(ctx context.Context) error {
	if err := s.warmUp(ctx); err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	cells := s.produceCells()
	for _, name := range sortedKeys(cells) {
		if !s.o.wants(name) || s.o.quick && !(keyCell(name) && cells[name].producers == 1) {
			continue
		}
		if err := s.produce(ctx, name, cells[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	// The latency comes before the restarts of consume: after one a Java program is slow for a while.
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{{"latency", s.latency}, {"consume", s.consume}, {"start", s.restart}, {"failover", s.failover}} {
		if s.o.wants(step.name) {
			if err := step.do(ctx); err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
		}
	}
	return nil
}

// warmTime is how long servers work before anything is measured: a Java program is compiled while it runs.
const warmTime = 4 * time.Second

func (s *session) warmUp(ctx context.Context) error {
	topic, err := s.topic(ctx)
	if err != nil {
		return err
	}
	if _, err := s.client.produce(ctx, topic, full(1024), warmTime); err != nil {
		return err
	}
	return s.drop(ctx, topic)
}

func (s *session) drop(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return until(ctx, func() error { return s.client.drop(ctx, topic) })
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
	s.notes(name, "MB/s", t.mbPerSecond())
	s.notes(name, "records/s", float64(t.records)/t.elapsed.Seconds())
	s.notes(name, "p50 ms", t.latency.quantile(50))
	s.notes(name, "p99 ms", t.latency.quantile(99))
	s.notes(name, "CPU s/GB", (after.cpu-before.cpu).Seconds()/(float64(t.bytes)/1e9))
	s.notes(name, "RSS MiB", float64(after.rss>>20))
	return nil
}

// full is the load that is read: one producer as fast as it can.
func full(bytes int) produceCell {
	return produceCell{bytes: bytes, producers: 1, acks: "all", linger: 5 * time.Millisecond}
}

// consume reads while it is written, and all of it again after a restart of the servers.
func (s *session) consume(ctx context.Context) error {
	type written struct {
		topic string
		bytes int
		*tally
	}
	var all []written
	for _, size := range []int{1024, 100} {
		topic, err := s.topic(ctx)
		if err != nil {
			return err
		}
		wrote, read, err := s.tail(ctx, topic, full(size), s.o.length)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("tail %d B", size)
		s.notes(name, "MB/s", read.mbPerSecond())
		s.notes(name, "p50 ms", read.latency.quantile(50))
		s.notes(name, "p99 ms", read.latency.quantile(99))
		all = append(all, written{topic, size, wrote})
	}
	for _, w := range all {
		if err := s.again(ctx, w.topic); err != nil {
			return err
		}
		took, err := s.cold(ctx, w.topic, w.records)
		if err != nil {
			return err
		}
		s.notes(fmt.Sprintf("cold %d B", w.bytes), "MB/s", float64(w.tally.bytes)/1e6/took.Seconds())
	}
	return nil
}

// cold reads so many records from the beginning.
func (s *session) cold(ctx context.Context, topic string, records int64) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var got atomic.Int64
	begun := time.Now()
	err := s.client.consume(ctx, topic, func() bool { return got.Load() >= records }, func([]byte) { got.Add(1) })
	if err != nil {
		err = fmt.Errorf("cold, after %d of %d records: %w", got.Load(), records, err)
	}
	return time.Since(begun), err
}

// again ends all servers, starts them, and waits until the topic is led.
func (s *session) again(ctx context.Context, topic string) error {
	if err := errors.Join(s.srv.stop(), s.srv.start()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := s.srv.wait(ctx); err != nil {
		return err
	}
	for p := range partitions {
		if err := until(ctx, func() error { _, err := s.client.leader(ctx, topic, p); return err }); err != nil {
			return err
		}
	}
	return nil
}

// tail reads what is written meanwhile, from the first record to the last.
func (s *session) tail(ctx context.Context, topic string, p produceCell, length time.Duration) (wrote, read *tally, err error) {
	read = &tally{latency: newLatencies()}
	var records, bytes, goal atomic.Int64
	goal.Store(-1)
	ctx, cancel := context.WithTimeout(ctx, length+startLimit)
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

func (s *session) latency(ctx context.Context) error {
	topic, err := s.topic(ctx)
	if err != nil {
		return err
	}
	_, read, err := s.tail(ctx, topic, produceCell{bytes: 1024, producers: 1, acks: "all", rate: latencyRate}, 2*s.o.length)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("end to end at %d/s", latencyRate)
	for _, q := range []float64{50, 90, 99, 99.9} {
		s.notes(name, fmt.Sprintf("p%g ms", q), read.latency.quantile(q))
	}
	return nil
}

// idleTime is how long servers have nothing to do before their memory is looked at.
const idleTime = 3 * time.Second

// restart measures from the start of the processes, on used disks, to the first acknowledged record; then what they use when idle.
func (s *session) restart(ctx context.Context) error {
	topic, err := s.topic(ctx)
	if err != nil {
		return err
	}
	if err := s.srv.stop(); err != nil {
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
	s.notes("start", "ms", float64(time.Since(begun).Milliseconds()))
	if err := s.srv.wait(limited); err != nil {
		return err
	}
	return s.idle(ctx)
}

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
	s.notes("idle", "RSS MiB", float64(at[1].rss>>20))
	s.notes("idle", "cores", (at[1].cpu-at[0].cpu).Seconds()/idleTime.Seconds())
	return nil
}
