package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// root is the directory of cairn's module; `make bench-peers` runs in it.
const root = "."

// options are the flags.
type options struct {
	quick  bool
	rounds int
	length time.Duration
	nodes  []int
	only   *regexp.Regexp
	system *regexp.Regexp
	write  bool
}

func (o options) wants(cell string) bool { return o.only.MatchString(cell) }

func main() {
	if len(os.Args) == 3 && os.Args[1] == natsCommand {
		if err := runNATS(os.Args[2]); err != nil {
			fail(err)
		}
		return
	}
	quick := flag.Bool("quick", false, "one round with short loads, and of the producers' cells only those with one producer that are compared")
	rounds := flag.Int("rounds", 1, "how often the systems take turns")
	length := flag.Duration("length", 4*time.Second, "how long a load lasts")
	nodes := flag.String("nodes", "1,3", "on how many nodes")
	only := flag.String("only", "", "a regular expression: only cells whose name it matches (produce ..., consume, latency, start, failover), and nothing written")
	system := flag.String("system", "", "a regular expression: only systems whose name and mode (\"Kafka, defaults\") it matches, and nothing written")
	flag.Parse()
	o := options{quick: *quick, rounds: *rounds, length: *length, only: regexp.MustCompile(*only), system: regexp.MustCompile(*system), write: *only == "" && *system == ""}
	if *quick {
		o.rounds, o.length = 1, time.Second
	}
	for _, n := range strings.Split(*nodes, ",") {
		switch n {
		case "1":
			o.nodes = append(o.nodes, 1)
		case "3":
			o.nodes = append(o.nodes, 3)
		default:
			fail(fmt.Errorf("-nodes %s: want 1, 3 or 1,3", *nodes))
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "peers:", err)
	os.Exit(1)
}

// run has the systems take turns, and reports even when one of them failed: what failed is in the report, too.
func run(ctx context.Context, o options) error {
	rep := newReport(o)
	var errs []error
	for round := range o.rounds {
		for _, nodes := range o.nodes {
			for _, sys := range systems(nodes) {
				if !o.system.MatchString(sys.String()) || ctx.Err() != nil {
					continue
				}
				fmt.Printf("round %d, %d node(s): %s\n", round+1, nodes, sys)
				if err := once(ctx, o, sys, round, rep); err != nil {
					err = fmt.Errorf("%s on %d node(s): %w", sys, nodes, err)
					fmt.Println("FAIL", err)
					rep.failed(err)
					errs = append(errs, err)
				}
			}
		}
	}
	text := rep.String()
	fmt.Print(text)
	if o.write && ctx.Err() == nil {
		errs = append(errs, rep.write(text))
	}
	return errors.Join(errs...)
}

// once starts a system with empty disks and takes it through all cells.
func once(ctx context.Context, o options, sys system, round int, rep *report) (err error) {
	dir, err := os.MkdirTemp(os.Getenv("CAIRN_TEST_DIR"), "peers-")
	if err != nil {
		return err
	}
	srv, err := sys.open(dir, sys.nodes, sys.safe)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	defer func() {
		err = errors.Join(err, srv.close())
		if err != nil {
			fmt.Println("logs are kept in", dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	starting, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := errors.Join(srv.start(), srv.wait(starting)); err != nil {
		return err
	}
	cl, err := sys.dial(srv.addresses(), sys)
	if err != nil {
		return err
	}
	defer cl.close()
	s := &session{sys: sys, client: cl, srv: srv, o: o}
	s.notes = func(cell, metric string, value float64) {
		fmt.Printf("  %s: %.4g %s\n", cell, value, metric)
		rep.note(sys, cell, metric, round, value)
	}
	return s.run(ctx)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// docs is where the report goes.
func docs(name string) string { return filepath.Join(root, "docs", name) }
