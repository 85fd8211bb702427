package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"cairn/integration/harness"
)

// faultsTag is the build tag of a binary that takes orders to disk and clock.
const faultsTag = "cairn_faults"

// options are the flags.
type options struct {
	seed     uint64
	rounds   int
	parallel int
	length   time.Duration
	replay   string
	check    string
	plan     bool
}

func main() {
	var o options
	flag.Uint64Var(&o.seed, "seed", 0, "seed of the first round; the next ones count on from there. 0: one of the clock's")
	flag.IntVar(&o.rounds, "rounds", 1, "rounds, each with a seed and a cluster of its own")
	flag.IntVar(&o.parallel, "parallel", 1, "rounds at a time")
	flag.DurationVar(&o.length, "length", 10*time.Second, "how long a round gives faults, about")
	flag.StringVar(&o.replay, "replay", "", "run the plan of a failed round again: its directory")
	flag.StringVar(&o.check, "check", "", "judge again what a round has left, without running anything: its directory")
	flag.BoolVar(&o.plan, "plan", false, "print the plan of the seed and run nothing")
	flag.Parse()
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano()) % 1_000_000_000
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.check != "" {
		return recheck(o.check, os.Stdout)
	}
	if o.plan {
		p := newPlan(o.seed, o.length)
		fmt.Printf("seed %d: %d partitions, min.insync.replicas=%d, log.flush=%s, session %v, lag %v\n", p.Seed, p.Partitions, p.MinISR, p.Flush, p.Session, p.Lag)
		for _, a := range p.Actions {
			fmt.Println(a)
		}
		return nil
	}
	plans, err := o.plans()
	if err != nil {
		return err
	}
	builder := harness.Builder{Tags: faultsTag}
	binary, err := builder.Binary()
	if err != nil {
		return err
	}
	return runAll(ctx, binary, plans, max(o.parallel, 1))
}

// plans are those of the rounds to run.
func (o options) plans() ([]Plan, error) {
	if o.replay != "" {
		var p Plan
		if err := readJSON(filepath.Join(o.replay, planFile), &p); err != nil {
			return nil, err
		}
		plans := make([]Plan, o.rounds)
		for i := range plans {
			plans[i] = p
		}
		return plans, nil
	}
	var plans []Plan
	for i := range o.rounds {
		plans = append(plans, newPlan(o.seed+uint64(i), o.length))
	}
	return plans, nil
}

// again says how a round is run again.
func again(p Plan, dir string) string {
	return fmt.Sprintf("make chaos SEED=%d LENGTH=%v, or make chaos REPLAY=%s", p.Seed, p.Length, dir)
}

// runAll runs the rounds, some at a time, and says how each went. All are run, whatever they find.
func runAll(ctx context.Context, binary string, plans []Plan, parallel int) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	failed, places := 0, make(chan struct{}, parallel)
	for _, p := range plans {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-places }()
			begun := time.Now()
			o, err := round(ctx, binary, p)
			if err == nil {
				err = os.RemoveAll(o.dir)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				fmt.Printf("seed %d: ok in %.0f s: %s; disks ended %d processes\n", p.Seed, time.Since(begun).Seconds(), o.report, o.diskEnds)
				return
			}
			failed++
			fmt.Printf("seed %d: FAILED after %.0f s: %v\n  kept in %s\n  again: %s\n", p.Seed, time.Since(begun).Seconds(), err, o.dir, again(p, o.dir))
		})
	}
	wg.Wait()
	fmt.Printf("%d rounds, %d failed\n", len(plans), failed)
	if failed > 0 {
		return fmt.Errorf("%d of %d rounds failed", failed, len(plans))
	}
	return errors.Join(ctx.Err())
}
