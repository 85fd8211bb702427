package main

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"cairn/integration/machine"
)

// report collects the lines of docs/benchmarks.md.
type report struct {
	origin                   string // of when, what and where the figures are
	starts, produce, consume strings.Builder
	frozen                   string
	failover                 strings.Builder
	groups                   strings.Builder
	idempotence              strings.Builder
	tool                     strings.Builder
	replica                  strings.Builder
}

func newReport(o options) report {
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	return report{origin: fmt.Sprintf("%s, commit %s, %s, %s, %d runs of %v each, load average before: %s", time.Now().UTC().Format("2006-01-02"),
		strings.TrimSpace(string(commit)), runtime.Version(), machine.Processors(), o.runs, o.length, machine.LoadAverage())}
}

func (r *report) started(run int, ready, first time.Duration, rss int64) {
	fmt.Fprintf(&r.starts, "| %d | %d | %d | %d |\n", run+1, ready.Milliseconds(), first.Milliseconds(), rss>>20)
}

func (r *report) produced(c produceCase, p produced) {
	rate := "full"
	if c.Rate > 0 {
		rate = fmt.Sprintf("%d/s", c.Rate)
	}
	fmt.Fprintf(&r.produce, "| %d | %s | %s | %d | %d | %s | %.0f | %.0f | %s | %s | %s | %.1f | %.2f | %d |\n", c.Nodes, c.Flush, c.Acks, c.RecordBytes, c.Producers, rate,
		p.mbPerSecond(), p.recordsPerSecond(), millis(p.P50), millis(p.P99), millis(p.P999), p.CPUPerGB, p.WrittenPerByte, p.PeakRSS>>20)
}

func (r *report) consumed(nodes, size int, kind string, c consumed) {
	p50, p99 := "", ""
	if kind == "tail" {
		p50, p99 = millis(c.P50), millis(c.P99)
	}
	fmt.Fprintf(&r.consume, "| %d | %s | %d | %.0f | %.0f | %s | %s | %.1f | %d |\n",
		nodes, kind, size, c.mbPerSecond(), c.recordsPerSecond(), p50, p99, c.CPUPerGB, c.PeakRSS>>20)
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }

// sections returns what was measured.
func (r *report) sections() []section {
	var list []section
	add := func(title, text, rows string) {
		if rows != "" {
			list = append(list, section{title, fmt.Sprintf("*%s, after: %s.*\n\n%s%s", r.origin, machine.LoadAverage(), text, rows)})
		}
	}
	add("Start", "One node with one topic, from the start of the process: to its ready line, to the first acknowledged record of a client that tries "+
		"without pause; then its resident memory.\n\n| run | ready ms | first record ms | RSS MiB |\n|---|---|---|---|\n", r.starts.String())
	add("Produce", "franz-go, 12 partitions, batches of up to 1 MiB, linger 5 ms, no compression, replication factor 1 or 3. Latency is that of a client that keeps its "+
		"buffer full, save in the rows with a rate. CPU is that of all nodes together; *written* is bytes sent to storage for each byte of record value and replica, until the nodes are quiet.\n\n"+
		"| nodes | flush | acks | record B | producers | load | MB/s | records/s | p50 ms | p99 ms | p999 ms | CPU s/GB | written | peak RSS MiB |\n"+
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n", r.produce.String())
	add("Consume", "*tail*: a consumer at the end of the log while one producer writes as fast as it can (acks=all, flush always); latency from the record's timestamp. "+
		"*cold*: all of that after a restart of the nodes.\n\n| nodes | kind | record B | MB/s | records/s | p50 ms | p99 ms | CPU s/GB | peak RSS MiB |\n"+
		"|---|---|---|---|---|---|---|---|---|\n", r.consume.String())
	add("A node that stands still", "", r.frozen)
	add("Idempotence", "One node, pairs of runs in turns, one with producer ids and sequences and one without; medians of the pairs' ratios.\n\n"+
		"| load | pairs | throughput with / without | broker's CPU per GB with / without |\n|---|---|---|---|\n", r.idempotence.String())
	add("The load tool", "CPU time per record of `cairn bench produce` and of a bare loop over the same client (franz-go, default properties, acks=all), as processes of their own "+
		"in turns; medians, the last column that of the pairs' ratios. It must stay below 1.15.\n\n| record B | pairs | tool ns | bare loop ns | ratio |\n|---|---|---|---|---|\n", r.tool.String())
	add("Failover", "Three brokers and a controller, default settings. From the moment something happens to the broker that leads to the first acknowledged acks=all record "+
		"that was sent after it; of up to 12 partitions that it led and that are produced to, the last one counts. The client looks for leaders every 20 ms.\n\n"+
		"| partitions | the leader is | rounds | median ms | worst ms |\n|---|---|---|---|---|\n", r.failover.String())
	add("Another replica", fmt.Sprintf("A partition of %d MiB on two of three brokers gets a third replica while a client produces 1 KiB records to it (acks=all, flush always): "+
		"its throughput before and until the replica is in sync, in runs of %v; the p99 of its worst run; how long the replica took, and what it was sent a second.\n\n"+
		"| records/s | MB/s before | MB/s meanwhile | ratio | p99 ms before | p99 ms meanwhile | in sync after s | MB/s copied |\n|---|---|---|---|---|---|---|---|\n",
		replicaBytes>>20, replicaSlice), r.replica.String())
	add("Many groups", fmt.Sprintf("%d classic groups of %d members, each with a connection of its own and a heartbeat every %v (the default); flush always. CPU and memory are those of all "+
		"brokers, idle: before there were groups. A heartbeat's time is the client's. The last two columns are `cairn groups list` and `cairn groups describe --all-groups`, from start to exit.\n\n"+
		"| nodes | cores | cores idle | RSS MiB | RSS MiB idle | heartbeats/s | p50 ms | p99 ms | list s | describe s |\n|---|---|---|---|---|---|---|---|---|---|\n",
		groupsCount, groupMembers, groupsHeartbeat), r.groups.String())
	return list
}

func (r *report) grouped(g groupsResult) {
	fmt.Fprintf(&r.groups, "| %d | %.2f | %.2f | %d | %d | %.0f | %s | %s | %.2f | %.2f |\n", g.Nodes, g.Cores, g.IdleCores, g.RSS>>20, g.IdleRSS>>20,
		g.Rate, millis(g.P50), millis(g.P99), g.List.Seconds(), g.Describe.Seconds())
}

func (r *report) gotReplica(g replicaResult) {
	rate := "full"
	if g.Rate > 0 {
		rate = fmt.Sprint(g.Rate)
	}
	took, copied := fmt.Sprintf("%.1f", g.Took.Seconds()), fmt.Sprintf("%.0f", replicaBytes/1e6/g.Took.Seconds())
	if !g.InSync {
		took, copied = "not after "+took, ""
	}
	fmt.Fprintf(&r.replica, "| %s | %.1f | %.1f | %.2f | %s | %s | %s | %s |\n", rate, g.Usual.mbPerSecond(), g.Beside.mbPerSecond(),
		g.Beside.mbPerSecond()/g.Usual.mbPerSecond(), millis(g.Usual.P99), millis(g.Beside.P99), took, copied)
}

// failedOver takes the durations in order.
func (r *report) failedOver(partitions int32, fault string, took []time.Duration) {
	fmt.Fprintf(&r.failover, "| %d | %s | %d | %d | %d |\n", partitions, fault, len(took), took[len(took)/2].Milliseconds(), took[len(took)-1].Milliseconds())
}

func (r *report) froze(length time.Duration, p produced) {
	r.frozen = fmt.Sprintf("One of three nodes stopped (SIGSTOP) for %v under full load of one producer, 1 KiB, acks=all, flush always; the others go on once it is fenced: "+
		"%.0f MB/s on average over that time, largest resident memory of a node %d MiB.\n", length, p.mbPerSecond(), p.PeakRSS>>20)
}

// idempotent adds a case of the pairs with and without idempotence.
func (r *report) idempotent(c produceCase, pairs int, throughput, cpu float64) {
	fmt.Fprintf(&r.idempotence, "| %s | %d | %.3f | %.3f |\n", c, pairs, throughput, cpu)
}

// toolCosts adds a case of the load tool; times are nanoseconds of CPU per record.
func (r *report) toolCosts(size, pairs int, tool, bare, ratio float64) {
	fmt.Fprintf(&r.tool, "| %d | %d | %.0f | %.0f | %.3f |\n", size, pairs, tool, bare, ratio)
}
