package main

import (
	"cairn/integration/machine"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// root is the directory of cairn's module; `make bench-peers` runs in it.
const root = "."

// options are the flags.
type options struct {
	parts  []string
	quick  bool
	rounds int
	length time.Duration
	nodes  []int
	only   *regexp.Regexp
	system *regexp.Regexp
	resume bool
	report bool
	dry    bool
	before string // another build of cairn, which is all that is compared with
}

// trial says that only some of it is measured: nothing is written to the docs.
func (o options) trial() bool {
	return o.only.String() != "" || o.system.String() != "" || o.before != ""
}

// systems take turns.
func (o options) systems(nodes int) []system {
	if o.before != "" {
		return builds(nodes, o.before)
	}
	return systems(nodes)
}

// file is where the results of a part are kept.
func (o options) file(part string) string {
	if o.trial() {
		part += "-trial"
	}
	return filepath.Join(root, "bin", "peers-"+part+".jsonl")
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == natsCommand {
		if err := runNATS(os.Args[2]); err != nil {
			fail(err)
		}
		return
	}
	part := flag.String("part", "all", "matrix: every cell once; key: the cells that matter most, in -rounds rounds; all: both")
	quick := flag.Bool("quick", false, "a first look: one round, short loads, and of the producers only those that are compared first")
	rounds := flag.Int("rounds", 5, "how often the systems take turns in the cells that matter most")
	length := flag.Duration("length", 2*time.Second, "how long a load lasts")
	nodes := flag.String("nodes", "1,3", "on how many nodes")
	only := flag.String("only", "", "a regular expression: only steps whose name it matches (produce ..., tail ..., end to end ..., restart, failover), and nothing written")
	system := flag.String("system", "", "a regular expression: only systems whose name and mode (\"Kafka, defaults\") it matches, and nothing written")
	resume := flag.Bool("resume", false, "go on with a run that ended early, and do again what failed in it")
	rep := flag.Bool("report", false, "measure nothing, write what an earlier run has found")
	dry := flag.Bool("dry-run", false, "measure nothing, list the steps and how long they take")
	before := flag.String("before", "", "another build of cairn: it and bin/cairn take turns in each cell, -rounds times, and nothing else; two files for benchstat are written")
	flag.Parse()
	o := options{
		quick: *quick, rounds: *rounds, length: *length, only: regexp.MustCompile(*only), system: regexp.MustCompile(*system),
		resume: *resume, report: *rep, dry: *dry, before: *before,
	}
	if *quick {
		o.rounds, o.length = 1, time.Second
	}
	switch *part {
	case "all":
		o.parts = []string{partMatrix, partKey}
	case partMatrix, partKey:
		o.parts = []string{*part}
	default:
		fail(fmt.Errorf("-part %s: want %s, %s or all", *part, partMatrix, partKey))
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

// run measures what is asked for and reports it, with what an earlier run has kept of the other part.
func run(ctx context.Context, o options) error {
	kept := map[string]*results{}
	switch {
	case o.report:
	case o.dry:
		return list(o)
	default:
		var visits []visit
		for _, part := range o.parts {
			r, err := openResults(o.file(part), o.resume, o.describe())
			if err != nil {
				return err
			}
			defer func() { _ = r.close() }() // each line is written as it comes
			kept[part] = r
			visits = append(visits, plan(part, o, r)...)
		}
		measure(ctx, o, kept, visits)
	}
	for _, part := range []string{partMatrix, partKey} {
		if kept[part] == nil && !o.trial() {
			r, err := readResults(o.file(part))
			if err != nil {
				return err
			}
			if r != nil {
				kept[part] = r
			}
		}
	}
	rep := newReport(kept)
	if ctx.Err() != nil {
		return errors.New("ended early: -resume goes on from here, -report writes what there is")
	}
	if o.before != "" {
		return errors.Join(writeBenchmarks(filepath.Join(root, "bin"), kept), rep.failed())
	}
	if o.trial() {
		fmt.Print(rep)
		return nil
	}
	if err := rep.write(); err != nil {
		return err
	}
	fmt.Println("written to", docs("benchmarks.md"))
	return rep.failed()
}

// list prints what would be done.
func list(o options) error {
	for _, part := range o.parts {
		visits := plan(part, o, &results{})
		for _, v := range visits {
			for _, st := range v.steps {
				fmt.Printf("%s, round %d: %s, %d node(s): %s\n", v.part, v.round+1, v.sys, v.sys.nodes, st.name)
			}
		}
		p := newProgress(o, visits)
		fmt.Printf("%s: %d steps, about %s\n", part, p.steps, minutes(p.total))
	}
	return nil
}

// describe is the first line of results.
func (o options) describe() about {
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	software := fmt.Sprintf("Apache Kafka %s (%s), nats-server %s, %s", kafkaVersion, javaVersion(), server.VERSION, runtime.Version())
	return about{
		Began: time.Now(), Commit: strings.TrimSpace(string(commit)), Rounds: o.rounds, Length: o.length, Quick: o.quick,
		Machine: machine.Processors(), Software: software, Load: machine.LoadAverage(),
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// docs is where the report goes.
func docs(name string) string { return filepath.Join(root, "docs", name) }
