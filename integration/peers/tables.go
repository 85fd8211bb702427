package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

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

// peers are the systems beside cairn, with the cairn of the same kind.
func peers(nodes int) (list []system, own map[string]system) {
	own = map[string]system{}
	var cairn system
	for _, s := range systems(nodes) {
		if s.name == "cairn" {
			cairn = s // comes first of its kind
			continue
		}
		list = append(list, s)
		own[s.String()] = cairn
	}
	return list, own
}

// comparedTable has the cells that matter most, with cairn's ratio to the others of its kind: more than 1 is more.
func (r *report) comparedTable(b *strings.Builder, nodes int) {
	others, own := peers(nodes)
	var ratios []string
	for _, s := range others {
		ratios = append(ratios, "cairn / "+s.String())
	}
	header(b, "", ratios...)
	for _, c := range comparisons() {
		b.WriteString("| " + c.title)
		for _, s := range systems(nodes) {
			b.WriteString(" | " + spreadOver(r.best(c.key(s))).String())
		}
		for _, s := range others {
			b.WriteString(" | " + r.ratio(c.key(own[s.String()]), c.key(s)).String())
		}
		b.WriteString(" |\n")
	}
}

// cells are the names of cells of any system in the matrix.
func (r *report) cells(nodes int, produce bool) []string {
	found := map[string]bool{}
	for k := range r.values[partMatrix] {
		if k.nodes == nodes && strings.HasPrefix(k.cell, "produce") == produce {
			found[k.cell] = true
		}
	}
	return sortedKeys(found)
}

func (r *report) matrix(s system, cell, metric string) spread {
	return spreadOver(r.values[partMatrix][key{s.nodes, s.String(), cell, metric}])
}

func (r *report) produceTable(b *strings.Builder, nodes int) {
	cells := r.cells(nodes, true)
	if len(cells) == 0 {
		return
	}
	b.WriteString("Producers: MB/s; p99 in ms, but for *sync* of a client that keeps its buffer full; CPU seconds of the servers for a GB.\n\n")
	header(b, "load")
	for _, cell := range cells {
		b.WriteString("| " + strings.TrimPrefix(cell, "produce "))
		for _, s := range systems(nodes) {
			text := ""
			if f := r.matrix(s, cell, "MB/s"); f.n > 0 {
				text = fmt.Sprintf("%s; %s; %s", f, r.matrix(s, cell, "p99 ms"), r.matrix(s, cell, "CPU s/GB"))
			}
			b.WriteString(" | " + text)
		}
		b.WriteString(" |\n")
	}
	b.WriteString("\n")
}

func (r *report) otherTable(b *strings.Builder, nodes int) {
	b.WriteString("Consumers, latency, start, memory, failover.\n\n")
	header(b, "")
	for _, cell := range r.cells(nodes, false) {
		metrics := map[string]bool{}
		for k := range r.values[partMatrix] {
			if k.nodes == nodes && k.cell == cell {
				metrics[k.metric] = true
			}
		}
		list := sortedKeys(metrics)
		slices.SortStableFunc(list, func(a, b string) int { return cmp.Compare(quantileOrder(a), quantileOrder(b)) })
		for _, metric := range list {
			b.WriteString("| " + cell + ", " + metric)
			for _, s := range systems(nodes) {
				b.WriteString(" | " + r.matrix(s, cell, metric).String())
			}
			b.WriteString(" |\n")
		}
	}
}

// quantileOrder sorts p99.9 behind p99, and quantiles behind the rest.
func quantileOrder(metric string) float64 {
	var q float64
	if n, _ := fmt.Sscanf(metric, "p%f ms", &q); n == 1 {
		return q
	}
	return 0
}

// judged says which metrics are compared, and whether more is better.
func judged(metric string) (larger, ok bool) {
	switch metric {
	case "MB/s":
		return true, true
	case "p50 ms", "p99 ms", "ms", "CPU s/GB", "RSS MiB", "cores":
		return false, true
	}
	return false, false
}

// slower is a figure in which a peer is better than cairn set up for the same.
type slower struct {
	own, peer system
	k         key // of the peer
	a, b      spread
	factor    float64 // how much worse, above 1
}

// slowerThan finds what a peer does better. Latencies of a client whose buffer is full follow from throughput, and are left out.
func (r *report) slowerThan(own, peer system) []slower {
	found := map[key]bool{}
	for _, values := range r.values {
		for k := range values {
			if k.nodes == peer.nodes && k.system == peer.String() {
				found[k] = true
			}
		}
	}
	var list []slower
	for k := range found {
		full := strings.HasPrefix(k.cell, "produce") && !strings.HasSuffix(k.cell, ", sync") || strings.HasPrefix(k.cell, "tail")
		larger, ok := judged(k.metric)
		if !ok || full && strings.HasSuffix(k.metric, " ms") || strings.HasPrefix(k.cell, "produce") && k.metric == "RSS MiB" {
			continue
		}
		cell := strings.Replace(k.cell, ", async", ", acks=all, linger 5", 1)
		a, b := spreadOver(r.best(key{own.nodes, own.String(), cell, k.metric})), spreadOver(r.best(k))
		if a.n == 0 || a.median == 0 || b.median == 0 {
			continue
		}
		factor := a.median / b.median
		if larger {
			factor = 1 / factor
		}
		if factor > 1 {
			list = append(list, slower{own, peer, k, a, b, factor})
		}
	}
	return list
}

// slowerTable says plainly where cairn loses, the worst first.
func (r *report) slowerTable(b *strings.Builder) {
	var list []slower
	for _, nodes := range r.nodes() {
		others, own := peers(nodes)
		for _, peer := range others {
			list = append(list, r.slowerThan(own[peer.String()], peer)...)
		}
	}
	b.WriteString("\n### Where cairn is behind\n\n")
	if len(list) == 0 {
		b.WriteString("In no figure of the tables.\n")
		return
	}
	slices.SortFunc(list, func(a, b slower) int {
		return cmp.Or(cmp.Compare(b.factor, a.factor), cmp.Compare(a.k.cell, b.k.cell), cmp.Compare(a.peer.String(), b.peer.String()))
	})
	b.WriteString("Every figure in which a peer is ahead of cairn set up for the same, the largest factor first.\n\n| nodes | figure | cairn | | peer | | factor |\n|---|---|---|---|---|---|---|\n")
	for _, s := range list {
		fmt.Fprintf(b, "| %d | %s, %s | %s | %s | %s | %s | %s |\n", s.k.nodes, s.k.cell, s.k.metric, s.own, s.a, s.peer, s.b, digits(s.factor))
	}
}

// blankList says why cells are blank.
func (r *report) blankList(b *strings.Builder) {
	var lines []string
	for part, of := range r.parts {
		for i, one := range of.byID {
			if one.Error != "" {
				lines = append(lines, fmt.Sprintf("* %s on %d node(s), %s, round %d of the %s: %s\n", i.System, i.Nodes, i.Step, i.Round+1, part, one.Error))
			}
		}
	}
	if len(lines) == 0 {
		return
	}
	slices.Sort(lines)
	b.WriteString("\n### What failed\n\nCells of these are blank.\n\n" + strings.Join(lines, ""))
}

// failed is an error when a step failed: the command is then not successful, although it has reported.
func (r *report) failed() error {
	n := 0
	for _, of := range r.parts {
		for _, one := range of.byID {
			if one.Error != "" {
				n++
			}
		}
	}
	if n > 0 {
		return fmt.Errorf("%d steps failed, see what failed in the report; -resume does them again", n)
	}
	return nil
}
