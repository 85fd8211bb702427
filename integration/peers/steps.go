package main

import (
	"context"
	"fmt"
	"regexp"
	"time"
)

// The parts of a run: every cell once, and the cells that matter most in many rounds.
const (
	partMatrix = "matrix"
	partKey    = "key"
)

// step is what is measured, kept and, when a run is continued, left out as one.
type step struct {
	name  string
	about time.Duration // what it takes on two cores, beside loads
	loads float64       // how often the length of a load
	do    func(ctx context.Context, s *session) error
}

func (st step) estimate(o options) time.Duration {
	return st.about + time.Duration(st.loads*float64(o.length))
}

func tailCell(size int) string { return fmt.Sprintf("tail %d B", size) }
func latencyCell() string      { return fmt.Sprintf("end to end at %d/s", latencyRate) }

// quantiles are those of the latency from end to end, in percent.
func quantiles() []float64                     { return []float64{50, 90, 99, 99.9} }
func quantileText(q float64) string            { return fmt.Sprintf("p%g ms", q) }
func (o options) latencyLength() time.Duration { return o.length * 3 / 2 }

// producers are the names of the loads of producers and what they are, in their order.
func producers(sys system) (names []string, cells map[string]produceCell) {
	cells = map[string]produceCell{}
	add := func(name string, p produceCell) {
		names, cells[name] = append(names, name), p
	}
	for _, size := range []int{1024, 100} {
		for _, n := range []int{1, 50} {
			at := fmt.Sprintf("produce %d B, %d producer(s), ", size, n)
			if sys.name == "NATS" {
				add(at+"async", produceCell{bytes: size, producers: n})
				add(at+"sync", produceCell{bytes: size, producers: n, sync: true})
				continue
			}
			add(at+"sync", produceCell{bytes: size, producers: n, acks: "all", sync: true})
			for _, acks := range []string{"1", "all"} {
				for _, linger := range []time.Duration{0, 5 * time.Millisecond} {
					add(at+fmt.Sprintf("acks=%s, linger %d", acks, linger.Milliseconds()), produceCell{bytes: size, producers: n, acks: acks, linger: linger})
				}
			}
		}
	}
	return names, cells
}

// keyLoad finds the loads of producers that are compared first: one producer, acks=all and linger 5 beside asynchronous publishing.
var keyLoad = regexp.MustCompile(`, 1 producer\(s\), (acks=all, linger 5|async)$`)

// steps are those of a part for a system, in the order in which they are done.
func steps(part string, o options, sys system) []step {
	var list []step
	names, cells := producers(sys)
	for _, name := range names {
		if (part == partKey || o.quick) && !keyLoad.MatchString(name) {
			continue
		}
		cell := cells[name]
		st := step{name: name, about: 700 * time.Millisecond, loads: 1, do: func(ctx context.Context, s *session) error { return s.produce(ctx, name, cell) }}
		if sys.nodes > 1 {
			st.about += 800 * time.Millisecond
		}
		list = append(list, st)
	}
	tail := func(size int) step {
		return step{name: tailCell(size), about: time.Second, loads: 1, do: func(ctx context.Context, s *session) error { return s.readWhileWritten(ctx, size) }}
	}
	list = append(list, step{name: latencyCell(), about: time.Second, loads: 1.5, do: func(ctx context.Context, s *session) error { return s.latency(ctx) }}, tail(1024))
	if part == partKey {
		return list
	}
	list = append(list, tail(100))
	list = append(list, step{name: "restart", about: 2*sys.startTime() + 2*idleTime + time.Second, loads: 2, do: func(ctx context.Context, s *session) error { return s.restart(ctx) }})
	if sys.nodes > 1 {
		list = append(list, step{name: "failover", about: sys.startTime() + 3*time.Second, do: func(ctx context.Context, s *session) error { return s.failover(ctx) }})
	}
	return list
}

// startTime is about what a start takes, and an end.
func (s system) startTime() time.Duration {
	switch {
	case s.name != "Kafka":
		return time.Second
	case s.nodes == 1:
		return 6 * time.Second
	}
	return 15 * time.Second
}

// warmTime is how long servers take records before anything is measured: a Java program is compiled while it runs.
func (s system) warmTime() time.Duration {
	if s.name == "Kafka" {
		return 4 * time.Second
	}
	return time.Second
}
