package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// heading begins the section of docs/benchmarks.md, which ends with the next heading of its kind or with the page.
const heading = "## Side by side with Kafka and NATS\n"

// key says which figure it is.
type key struct {
	nodes        int
	system       string
	cell, metric string
}

// report collects figures, one of each round.
type report struct {
	o      options
	load   string // average, before
	values map[key]map[int]float64
	errs   []string
}

func newReport(o options) *report {
	return &report{o: o, load: loadAverage(), values: map[key]map[int]float64{}}
}

func (r *report) note(s system, cell, metric string, round int, value float64) {
	k := key{s.nodes, s.String(), cell, metric}
	if r.values[k] == nil {
		r.values[k] = map[int]float64{}
	}
	r.values[k][round] = value
}

func (r *report) failed(err error) {
	line, _, _ := strings.Cut(err.Error(), "\n")
	r.errs = append(r.errs, line)
}

// spread is the median with the least and the greatest.
type spread struct {
	n                int
	median, min, max float64
}

func spreadOf(list []float64) spread {
	if len(list) == 0 {
		return spread{}
	}
	slices.Sort(list)
	return spread{len(list), list[len(list)/2], list[0], list[len(list)-1]}
}

// String shows three digits.
func (s spread) String() string {
	switch s.n {
	case 0:
		return ""
	case 1:
		return digits(s.median)
	}
	return fmt.Sprintf("%s (%s to %s)", digits(s.median), digits(s.min), digits(s.max))
}

func digits(v float64) string {
	if v == 0 {
		return "0"
	}
	places := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return fmt.Sprintf("%.*f", min(places, 3), v)
}

func (r *report) figure(nodes int, s, cell, metric string) spread {
	var list []float64
	for _, v := range r.values[key{nodes, s, cell, metric}] {
		list = append(list, v)
	}
	return spreadOf(list)
}

// ratio is that of two systems, round by round.
func (r *report) ratio(nodes int, a, aCell, b, bCell, metric string) spread {
	var list []float64
	other := r.values[key{nodes, b, bCell, metric}]
	for round, v := range r.values[key{nodes, a, aCell, metric}] {
		if w, ok := other[round]; ok && w != 0 {
			list = append(list, v/w)
		}
	}
	return spreadOf(list)
}

// compared is a figure that matters most: what wire clients and NATS have of it.
type compared struct {
	title, wire, nats, metric string
	larger                    bool // is better
}

func comparisons() []compared {
	return []compared{
		{"produce 1 KiB, MB/s", "produce 1024 B, 1 producer(s), acks=all, linger 5", "produce 1024 B, 1 producer(s), async", "MB/s", true},
		{"produce 100 B, MB/s", "produce 100 B, 1 producer(s), acks=all, linger 5", "produce 100 B, 1 producer(s), async", "MB/s", true},
		{"tail 1 KiB, MB/s", "tail 1024 B", "tail 1024 B", "MB/s", true},
		{"end to end, p99 ms", fmt.Sprintf("end to end at %d/s", latencyRate), fmt.Sprintf("end to end at %d/s", latencyRate), "p99 ms", false},
	}
}

func (r *report) String() string {
	var b strings.Builder
	b.WriteString(heading + "\n" + r.head())
	for _, nodes := range r.o.nodes {
		fmt.Fprintf(&b, "\n### %s\n\n", nodesText(nodes))
		r.comparedTable(&b, nodes)
		r.produceTable(&b, nodes)
		r.otherTable(&b, nodes)
	}
	if len(r.errs) > 0 {
		b.WriteString("\nWhat failed:\n\n")
		for _, e := range r.errs {
			b.WriteString("* " + e + "\n")
		}
	}
	return b.String()
}

func nodesText(nodes int) string {
	if nodes == 1 {
		return "One node"
	}
	return "Three nodes"
}

func (r *report) head() string {
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	kind := fmt.Sprintf("%d round(s), in each of which the systems take turns with empty disks; loads of %v.", r.o.rounds, r.o.length)
	if r.o.quick {
		kind = "A first look (`-quick`): one round with loads of 1 s. Such figures say what order of magnitude to expect, and no more."
	}
	return fmt.Sprintf(`Written by `+"`make bench-peers`"+`. %s, cairn %s, Apache Kafka %s (%s), nats-server %s, %s; %d cores (%s), clients and servers on the same machine,
load average before %s, after %s. %s Where there are several rounds a figure is the median, with the least and the greatest.

* cairn `+"`flush always`"+` and NATS `+"`sync_interval always`"+` have a record on the disk of each replica that counts before they acknowledge it. Kafka writes through with
  `+"`flush.messages=1`"+`, which it does for each batch. cairn `+"`flush os`"+` and the defaults of Kafka and NATS (which syncs every two minutes) leave that to the operating system.
* Three nodes: replication factor 3 and one controller apart for cairn and Kafka, R3 for NATS, whose servers are controllers themselves. acks=all, min.insync.replicas=1.
* cairn and Kafka have the same client (franz-go, 12 partitions, batches up to 1 MiB, no compression) and Kafka the options of its start script (heap of 1 GiB). NATS has 12 streams on files
  and nats.go: *async* with up to %d records unanswered for each producer, *sync* with one. It has no batches of a client and no acks=1, so its rows stand by themselves.
* Before anything is measured each system takes 1 KiB records for %v: a Java program is compiled while it runs.
* *tail*: a consumer reads what one producer writes as fast as it can (acks=all, linger 5, or async) from the first record to the last. *cold*: all of that after a restart of the servers; the
  files are in the operating system's cache. *end to end*: from the moment a record was due to its arrival at a consumer, 1 KiB, %d a second, linger 0.
* *start*: from the start of the processes, which have data of the cells before, to the first acknowledged record. *failover*: SIGKILL of a leader, until each partition that it led
  has acknowledged a record that was sent after that.
`, time.Now().UTC().Format("2006-01-02"), strings.TrimSpace(string(commit)), kafkaVersion, javaVersion(), server.VERSION, runtime.Version(), runtime.NumCPU(), cpuModel(),
		r.load, loadAverage(), kind, inFlight, warmTime, latencyRate)
}

// header writes the head of a table with a column for each system.
func header(b *strings.Builder, first string, more ...string) {
	b.WriteString("| " + first)
	columns := 1 + len(more)
	for _, s := range systems(1) {
		b.WriteString(" | " + s.String())
		columns++
	}
	for _, m := range more {
		b.WriteString(" | " + m)
	}
	b.WriteString(" |\n" + strings.Repeat("|---", columns) + "|\n")
}

// comparedTable has the cells that matter most, with cairn's ratio to the others of its kind: more than 1 is more.
func (r *report) comparedTable(b *strings.Builder, nodes int) {
	var ratios []string
	all := systems(nodes)
	for _, s := range all {
		if s.name != "cairn" {
			ratios = append(ratios, "cairn / "+s.String())
		}
	}
	header(b, "", ratios...)
	for _, c := range comparisons() {
		b.WriteString("| " + c.title)
		for _, s := range all {
			b.WriteString(" | " + r.figure(nodes, s.String(), c.of(s), c.metric).String())
		}
		for i, s := range all {
			if s.name != "cairn" {
				own := all[i/3*3] // cairn comes first of its kind
				b.WriteString(" | " + r.ratio(nodes, own.String(), c.wire, s.String(), c.of(s), c.metric).String())
			}
		}
		b.WriteString(" |\n")
	}
}

// of is the cell of a system.
func (c compared) of(s system) string {
	if s.name == "NATS" {
		return c.nats
	}
	return c.wire
}

// cells are the names of cells of any system.
func (r *report) cells(nodes int, prefix string) []string {
	found := map[string]bool{}
	for k := range r.values {
		if k.nodes == nodes && strings.HasPrefix(k.cell, prefix) {
			found[k.cell] = true
		}
	}
	return sortedKeys(found)
}

func (r *report) produceTable(b *strings.Builder, nodes int) {
	cells := r.cells(nodes, "produce")
	if len(cells) == 0 {
		return
	}
	b.WriteString("\nProducers: MB/s; p99 in ms of a client that keeps its buffer full; CPU seconds of the servers for a GB.\n\n")
	header(b, "load")
	for _, cell := range cells {
		b.WriteString("| " + strings.TrimPrefix(cell, "produce "))
		for _, s := range systems(nodes) {
			text := ""
			if f := r.figure(nodes, s.String(), cell, "MB/s"); f.n > 0 {
				text = fmt.Sprintf("%s; %s; %s", f, digits(r.figure(nodes, s.String(), cell, "p99 ms").median), digits(r.figure(nodes, s.String(), cell, "CPU s/GB").median))
			}
			b.WriteString(" | " + text)
		}
		b.WriteString(" |\n")
	}
}

func (r *report) otherTable(b *strings.Builder, nodes int) {
	b.WriteString("\nConsumers, latency, start, memory, failover.\n\n")
	header(b, "")
	rows := map[[2]string]bool{}
	for k := range r.values {
		if k.nodes == nodes && !strings.HasPrefix(k.cell, "produce") {
			rows[[2]string{k.cell, k.metric}] = true
		}
	}
	list := make([][2]string, 0, len(rows))
	for row := range rows {
		list = append(list, row)
	}
	slices.SortFunc(list, func(a, b [2]string) int { return strings.Compare(a[0]+" "+a[1], b[0]+" "+b[1]) })
	for _, row := range list {
		b.WriteString("| " + row[0] + ", " + row[1])
		for _, s := range systems(nodes) {
			b.WriteString(" | " + r.figure(nodes, s.String(), row[0], row[1]).String())
		}
		b.WriteString(" |\n")
	}
}

// write puts the section into docs/benchmarks.md, and the plots beside it.
func (r *report) write(text string) error {
	file := docs("benchmarks.md")
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := r.plots(); err != nil {
		return err
	}
	text += "\n![Throughput](peers-throughput.svg)\n\n![Latency](peers-latency.svg)\n"
	page := string(old)
	head, rest, found := strings.Cut(page, heading)
	if !found { // before what people write
		head, rest, found = strings.Cut(page, "\n## Notes\n")
		if found {
			rest = "\n## Notes\n" + rest
		}
		head = strings.TrimRight(head, "\n") + "\n\n"
	}
	if i := strings.Index(rest, "\n## "); i >= 0 {
		text += rest[i:]
	}
	return os.WriteFile(file, []byte(head+text), 0o644)
}

// loadAverage tells how busy the machine was with other things.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 0 {
		return fields[0]
	}
	return "unknown"
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	defer func() { _ = f.Close() }() // only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "model name"); ok {
			return strings.Trim(name, " \t:")
		}
	}
	return "unknown processor"
}

// javaVersion is the first line of java -version.
func javaVersion() string {
	out, err := exec.Command("java", "-version").CombinedOutput()
	if err != nil {
		return "unknown Java"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.ReplaceAll(line, `"`, "")
}
