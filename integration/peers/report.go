package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

// heading begins the section of docs/benchmarks.md, which ends with the next heading of its kind or with the page.
const heading = "## Side by side with Kafka and NATS\n"

// key says which figure it is.
type key struct {
	nodes        int
	system       string
	cell, metric string
}

// report has figures of the parts that were measured.
type report struct {
	parts  map[string]*results                // those there are
	values map[string]map[key]map[int]float64 // by part and round
}

func newReport(parts map[string]*results) *report {
	r := &report{parts: parts, values: map[string]map[key]map[int]float64{}}
	for part, of := range parts {
		values := map[key]map[int]float64{}
		for i, one := range of.byID {
			for cell, metrics := range one.Figures {
				for metric, v := range metrics {
					k := key{i.Nodes, i.System, cell, metric}
					if values[k] == nil {
						values[k] = map[int]float64{}
					}
					values[k][i.Round] = v
				}
			}
		}
		r.values[part] = values
	}
	return r
}

// best are the rounds of a figure: those of the part that was repeated, or else the one of the matrix.
func (r *report) best(k key) map[int]float64 {
	if v := r.values[partKey][k]; len(v) > 0 {
		return v
	}
	return r.values[partMatrix][k]
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

func spreadOver(rounds map[int]float64) spread {
	var list []float64
	for _, v := range rounds {
		list = append(list, v)
	}
	return spreadOf(list)
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

// ratio is that of two figures, round by round.
func (r *report) ratio(a, b key) spread {
	var list []float64
	other := r.best(b)
	for round, v := range r.best(a) {
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
		{"tail 1 KiB, MB/s", tailCell(1024), tailCell(1024), "MB/s", true},
		{"end to end, p99 ms", latencyCell(), latencyCell(), "p99 ms", false},
	}
}

// of is the cell of a system.
func (c compared) of(s system) string {
	if s.name == "NATS" {
		return c.nats
	}
	return c.wire
}

func (c compared) key(s system) key { return key{s.nodes, s.String(), c.of(s), c.metric} }

// nodes are the numbers of nodes that something was measured on.
func (r *report) nodes() []int {
	found := map[int]bool{}
	for _, of := range r.parts {
		for i := range of.byID {
			found[i.Nodes] = true
		}
	}
	return sortedKeys(found)
}

func (r *report) String() string {
	var b strings.Builder
	b.WriteString(heading + "\n" + r.head())
	for _, nodes := range r.nodes() {
		fmt.Fprintf(&b, "\n### What matters most, %s\n\n", nodesText(nodes))
		r.comparedTable(&b, nodes)
	}
	b.WriteString("\n![Throughput](peers-throughput.svg)\n\n![Latency](peers-latency.svg)\n")
	r.slowerTable(&b)
	for _, nodes := range r.nodes() {
		if r.parts[partMatrix] == nil {
			break
		}
		fmt.Fprintf(&b, "\n### All cells, %s\n\n", nodesText(nodes))
		r.produceTable(&b, nodes)
		r.otherTable(&b, nodes)
	}
	r.blankList(&b)
	return b.String()
}

func nodesText(nodes int) string {
	if nodes == 1 {
		return "one node"
	}
	return "three nodes"
}

// head says what was measured, with what and how.
func (r *report) head() string {
	var b strings.Builder
	b.WriteString("Written by `make bench-peers`, all of it; what it means is in the notes below. Clients and servers are on the same machine.\n\n")
	for _, part := range []string{partKey, partMatrix} {
		of := r.parts[part]
		if of == nil {
			continue
		}
		a := of.about
		what := fmt.Sprintf("*What matters most*: %d rounds, in each of which the systems take turns with empty disks", a.Rounds)
		if part == partMatrix {
			what = "*All cells*: one round, so an order among neighbours may be chance"
		}
		if a.Quick {
			what += "; a first look with loads of a second, which say what order of magnitude to expect and no more"
		}
		fmt.Fprintf(&b, "* %s; loads of %v; %s, cairn %s, %s; %s; load average before %s.\n", what, a.Length, a.Began.UTC().Format("2006-01-02"), a.Commit, a.Software, a.Machine, a.Load)
	}
	fmt.Fprintf(&b, `* Where there are several rounds a figure is the median, with the least and the greatest, and a ratio is the median of the rounds' ratios.
* cairn `+"`flush always`"+` and NATS `+"`sync_interval always`"+` have a record on the disk of each replica that counts before they acknowledge it. Kafka writes through with
  `+"`flush.messages=1`"+`, which it does for each batch. cairn `+"`flush os`"+` and the defaults of Kafka and NATS (which syncs every two minutes) leave that to the operating system.
* Three nodes: replication factor 3 and one controller apart for cairn and Kafka, R3 for NATS, whose servers are controllers themselves. acks=all, min.insync.replicas=1.
* cairn and Kafka have the same client (franz-go, 12 partitions, batches up to 1 MiB, no compression, at most %d MiB buffered) and Kafka the options of its start script (heap of 1 GiB). NATS has
  12 streams on files and nats.go: *async* with up to %d records unanswered, or %d for each of many producers. It has no batches of a client and no acks=1, so these rows stand by themselves.
* *sync*: each producer has one record unanswered, with acks=all and linger 0.
* Before anything is measured each system takes 1 KiB records: Kafka for %v, since a Java program is compiled while it runs, the others for %v.
* *tail*: a consumer reads what one producer writes as fast as it can (acks=all, linger 5, or async) from the first record to the last. *cold*: all of that after a restart of the servers,
  with none of their files in memory. *end to end*: from the moment a record was due to its arrival at a consumer, 1 KiB, %d a second, linger 0.
* *start*: from the start of the processes, with the data of the cells before and none of it in memory, to the first acknowledged record. *failover*: SIGKILL of a leader, until each
  partition that it led has acknowledged a record that was sent after that. *idle*: two seconds after a start; all processes together, a controller of its own included.
`, bufferBytes>>20, inFlight, inFlightMany, system{name: "Kafka"}.warmTime(), system{}.warmTime(), latencyRate)
	return b.String()
}

// write puts the section into docs/benchmarks.md, and the plots beside it.
func (r *report) write() error {
	file := docs("benchmarks.md")
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := r.plots(docs("peers-throughput.svg"), docs("peers-latency.svg")); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(replaced(string(old), r.String())), 0o644)
}

// replaced is the page with the section in its place, or before what people write.
func replaced(page, text string) string {
	head, rest, found := strings.Cut(page, heading)
	if !found {
		head, rest, found = strings.Cut(page, "\n## Notes\n")
		if found {
			rest = "\n## Notes\n" + rest
		}
		head = strings.TrimRight(head, "\n") + "\n\n"
	}
	if i := strings.Index(rest, "\n## "); i >= 0 {
		text += rest[i:]
	}
	return head + text
}
