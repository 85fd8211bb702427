package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/chaos/checker"
	"cairn/integration/harness"
	"cairn/integration/workload"
	orders "cairn/internal/faults"
)

const (
	serveWithin  = 30 * time.Second // after the faults, each partition serves
	syncWithin   = 60 * time.Second // after the faults, all replicas are in sync
	settleWithin = 20 * time.Second // then, what is lost is reported
	startWithin  = 90 * time.Second
)

// The files that a failed round leaves beside the nodes' directories.
const (
	planFile    = "plan.json"
	historyFile = "history.jsonl"
	finalFile   = "final.json"
	reportFile  = "report.txt"
)

// outcome is what became of a round.
type outcome struct {
	report checker.Report
	losses int    // records that are reported lost, by right
	dir    string // with all that the round has left: the caller removes it, or keeps it
	// diskEnds is how many processes were ended by their disks.
	diskEnds int
}

// round runs a plan on processes with these environment variables, too. The error is that of a round that could not be carried out, or what the check found.
func round(ctx context.Context, binary string, p Plan, env ...string) (o outcome, err error) {
	c, net, err := harness.Networked(binary, harness.Shape{
		Brokers: brokers, Controllers: controllers, Props: p.properties(), ControllerProps: p.properties(),
		Env: append([]string{orders.Env + "=" + ordersFile}, env...), // of its own directory
	})
	if err != nil {
		return o, err
	}
	c.Keep()
	defer func() {
		o.dir = c.Dir
		if err != nil {
			for _, n := range c.Nodes {
				if n.Serving() {
					err = errors.Join(err, n.Quit())
				}
			}
			err = errors.Join(err, os.WriteFile(filepath.Join(c.Dir, reportFile), []byte(err.Error()+"\n"), 0o600))
		}
		err = errors.Join(err, c.Close(), net.Close())
	}()
	if err := writeJSON(filepath.Join(c.Dir, planFile), p); err != nil {
		return o, err
	}
	file, err := os.Create(filepath.Join(c.Dir, historyFile))
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	admin, err := kgo.NewClient(workload.ClientOptions(c.Bootstrap())...)
	if err != nil {
		return o, err
	}
	defer admin.Close()
	history := checker.NewRecorder(file)
	f := &faults{cluster: c, net: net, admin: kadm.NewClient(admin), history: history, frozen: map[int]bool{}, machine: newMachine()}
	r := &running{plan: p, faults: f, history: history}
	final, err := r.run(ctx)
	if err != nil {
		f.lookForEnded() // the reason may be that a process is gone
		h, endErr := history.End()
		return o, errors.Join(err, checker.Check(h, checker.Final{}).ProcessErr(), endErr)
	}
	o, err = judge(c.Dir, history, final)
	o.diskEnds = f.diskEnds
	return o, err
}

// judge checks a round that has come to its end.
func judge(dir string, history *checker.Recorder, final checker.Final) (o outcome, err error) {
	h, err := history.End()
	if err != nil {
		return o, err
	}
	if err := writeJSON(filepath.Join(dir, finalFile), final); err != nil {
		return o, err
	}
	o.report = checker.Check(h, final)
	o.losses = o.report.LostRecords
	if o.report.AckedRecords < 100 {
		return o, fmt.Errorf("only %d records were acknowledged: the load did not run", o.report.AckedRecords)
	}
	return o, o.report.Err()
}

func (p Plan) properties() map[string]string {
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	return map[string]string{
		"log.flush": p.Flush, "broker.session.timeout.ms": ms(p.Session), "broker.heartbeat.interval.ms": ms(p.Session / 6),
		"replica.lag.time.max.ms": ms(p.Lag), "auto.create.topics.enable": "false", "leader.imbalance.check.interval.seconds": "5",
		"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2", "group.initial.rebalance.delay.ms": "200",
		"log.ballast.bytes": "1048576",
	}
}

// running is a round under way.
type running struct {
	plan    Plan
	faults  *faults
	history *checker.Recorder
	load    *load
	readers *readerGroup
	members *memberGroup
}

// run carries the round out and returns its end.
func (r *running) run(ctx context.Context) (final checker.Final, err error) {
	c := r.faults.cluster
	startCtx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	if err := c.Start(startCtx); err != nil {
		return final, err
	}
	if err := r.faults.takesOrders(); err != nil {
		return final, err
	}
	configs := map[string]string{"min.insync.replicas": strconv.Itoa(r.plan.MinISR)}
	if err := workload.CreateTopic(startCtx, c.Bootstrap(), topic, r.plan.Partitions, brokers, configs); err != nil {
		return final, err
	}
	if err := waitInSync(startCtx, c.Bootstrap()); err != nil {
		return final, err
	}
	if err := r.findCoordinators(startCtx); err != nil {
		return final, err
	}
	if err := r.underLoad(ctx); err != nil {
		return final, err
	}
	defer r.stopReaders()
	if final, err = r.settle(ctx); err != nil {
		return final, err
	}
	r.faults.lookForEnded()
	for _, n := range c.Brokers() {
		if err := n.Stop(startWithin); err != nil {
			return final, err
		}
	}
	final.Replicas, err = stored(c)
	return final, err
}

// findCoordinators has the internal topics made, so that transactions and groups are there when the faults begin.
func (r *running) findCoordinators(ctx context.Context) error {
	adm := r.faults.admin
	for ctx.Err() == nil {
		txns, groups := adm.FindTxnCoordinators(ctx, "txn-0"), adm.FindGroupCoordinators(ctx, groupName)
		if txns.Ok() && groups.Ok() {
			break
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return errors.Join(txns.Error(), groups.Error(), err)
		}
	}
	for _, internal := range []string{"__transaction_state", "__consumer_offsets"} {
		if err := workload.WaitLeaders(ctx, adm, internal); err != nil {
			return err
		}
	}
	return nil
}

// underLoad gives the faults under load, heals, and ends the load once each partition has served or is known to be stuck.
func (r *running) underLoad(ctx context.Context) (err error) {
	addrs := r.faults.cluster.Bootstrap()
	if r.load, err = startLoad(r.plan, addrs, r.history); err != nil {
		return err
	}
	if r.readers, err = startReaders(r.plan, addrs, r.history); err == nil {
		r.members, err = startMembers(r.plan, addrs, r.history)
	}
	if r.faults.load = r.load; err == nil {
		err = r.faults.run(ctx, r.plan.Actions)
	}
	if err == nil {
		endCtx, cancel := context.WithTimeout(ctx, startWithin)
		defer cancel()
		err = r.faults.end(endCtx)
	}
	if err == nil {
		within := r.plan.within(serveWithin)
		serveCtx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		stuck, stuckTxns := r.load.waitServing(serveCtx)
		for _, w := range stuckTxns {
			r.history.Add(checker.Event{Kind: checker.Stuck, Text: fmt.Sprintf("%s saw no transaction through for %v", w, within)})
		}
		for _, p := range stuck {
			r.history.Add(checker.Event{Kind: checker.Stuck, Partition: p, Text: fmt.Sprintf("acknowledged no new acks=all record for %v", within)})
		}
	}
	stopCtx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	if err = errors.Join(err, r.load.stop(stopCtx)); err != nil {
		r.stopReaders()
	}
	return err
}

func (r *running) stopReaders() {
	if r.readers != nil {
		r.readers.stop()
	}
	if r.members != nil {
		r.members.stop()
	}
}

// settle waits until all replicas are in sync and the readers at the end, and then a while for the losses to be reported.
func (r *running) settle(ctx context.Context) (final checker.Final, err error) {
	c := r.faults.cluster
	syncCtx, cancel := context.WithTimeout(ctx, syncWithin)
	defer cancel()
	if err := waitInSync(syncCtx, c.Bootstrap()); err != nil {
		return final, err
	}
	stableCtx, cancel := context.WithTimeout(ctx, r.plan.within(serveWithin))
	defer cancel()
	for p, open := range waitStable(stableCtx, r.faults.admin) {
		r.history.Add(checker.Event{Kind: checker.Stuck, Partition: p, Text: open})
	}
	there, err := readLog(syncCtx, c.Bootstrap())
	if err != nil {
		return final, err
	}
	endsCtx, cancel := context.WithTimeout(ctx, r.plan.within(syncWithin))
	defer cancel()
	r.readers.waitEnds(endsCtx, endsOf(there.Log), endsOf(there.Committed))
	r.members.waitCommitted(endsCtx, endsOf(there.Log))
	r.history.Add(checker.Event{Kind: checker.Fault, Text: "all replicas are in sync"})
	for deadline := time.Now().Add(r.plan.within(settleWithin)); ; {
		final, err := collect(ctx, c, r.plan)
		if err != nil {
			return final, err
		}
		h, err := r.history.End()
		if err != nil {
			return final, err
		}
		if checker.Check(h, final).Err() == nil || time.Now().After(deadline) {
			return final, nil
		}
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return final, err
		}
	}
}

func writeJSON(file string, v any) error {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}

func readJSON(file string, v any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// recheck judges again what a round has left.
func recheck(dir string, out io.Writer) error {
	file, err := os.Open(filepath.Join(dir, historyFile))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read
	h, err := checker.ReadHistory(file)
	if err != nil {
		return err
	}
	var final checker.Final
	if err := readJSON(filepath.Join(dir, finalFile), &final); err != nil {
		return err
	}
	rep := checker.Check(h, final)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", rep)
	for _, f := range rep.Findings {
		fmt.Fprintf(&b, "  %s\n", f)
	}
	_, err = io.WriteString(out, b.String())
	return errors.Join(err, rep.Err())
}
