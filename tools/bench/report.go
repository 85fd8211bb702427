package bench

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// timelineMax bounds the windows that are kept for the time line: a week at the default interval.
const timelineMax = 7 * 24 * 3600 / 5

// reporter prints windows as they end and keeps them.
type reporter struct {
	run      *produceRun
	total    *tally
	last     time.Duration // end of the last window
	timeline []Window
	dropped  bool // the time line was full
}

func newReporter(r *produceRun) *reporter { return &reporter{run: r, total: newTally()} }

// window takes the meters' windows; print is false for the last one, which Kafka's tool does not print on its own.
func (p *reporter) window(print bool) {
	t, now := newTally(), p.run.now()
	for _, w := range p.run.workers {
		w.meter.take(t)
	}
	p.total.merge(t.latencies, t.bytes)
	win := t.window(p.last, now)
	p.last = now
	if len(p.timeline) < timelineMax {
		p.timeline = append(p.timeline, win)
	} else {
		p.dropped = true
	}
	if print && !p.run.out.JSON {
		_, _ = fmt.Fprintln(p.run.out.Out, win.line()) // the totals at the end report a broken output
	}
}

// line is a window as Kafka's tool prints it.
func (w Window) line() string {
	return fmt.Sprintf("%d records sent, %.1f records/sec (%.2f MB/sec), %.1f ms avg latency, %.1f ms max latency.",
		w.Records, w.Rate, w.MBRate, w.Average, w.Max)
}

// totalLine is a sum as Kafka's tool prints it; kind is empty or " steady state".
func (w Window) totalLine(kind string) string {
	return fmt.Sprintf("%d%s records sent, %f records/sec (%.2f MB/sec), %.2f ms avg latency, %.2f ms max latency, "+
		"%.0f ms 50th, %.0f ms 95th, %.0f ms 99th, %.0f ms 99.9th.", w.Records, kind, w.Rate, w.MBRate, w.Average, w.Max, w.P50, w.P95, w.P99, w.P999)
}

// produceResult is the JSON form of a run.
type produceResult struct {
	Total    Window   `json:"total"`
	Steady   *Window  `json:"steadyState,omitempty"`
	Verdict  Verdict  `json:"verdict"`
	Timeline []Window `json:"timeline"`
}

// finish prints the sums and writes the files.
func (p *reporter) finish() error {
	p.window(false)
	res := produceResult{Total: p.total.window(0, p.last), Verdict: p.run.outcomes.verdict(), Timeline: p.timeline}
	if p.run.opts.Warmup > 0 {
		steady, began := newTally(), time.Duration(-1)
		for _, w := range p.run.workers {
			w.meter.takeSteady(steady, &began)
		}
		win := steady.window(began, p.last)
		res.Steady = &win
	}
	return errors.Join(p.print(res), p.writeFiles())
}

func (p *reporter) print(res produceResult) error {
	out := p.run.out
	if p.dropped {
		out.Warn("the time line holds the first %d windows alone; --reporting-interval makes them longer", timelineMax)
	}
	if out.JSON {
		return out.WriteJSON(res)
	}
	if _, err := fmt.Fprintln(out.Out, res.Total.totalLine("")); err != nil {
		return err
	}
	if res.Steady != nil {
		if _, err := fmt.Fprintln(out.Out, res.Steady.totalLine(" steady state")); err != nil {
			return err
		}
	}
	if p.run.opts.PrintMetrics {
		if err := p.printMetrics(); err != nil {
			return err
		}
	}
	out.Note("%s; 99.99th percentile %.2f ms", res.Verdict, res.Total.P9999)
	return nil
}

// printMetrics prints the counters of all clients together. Those of batches lag a little behind: the client counts a batch after its records.
func (p *reporter) printMetrics() error {
	var connects, batches, records, raw, compressed, written, failed int64
	for _, w := range p.run.workers {
		c := &w.counters
		connects, batches, records = connects+c.connects.Load(), batches+c.batches.Load(), records+c.batchRecords.Load()
		raw, compressed = raw+c.uncompressed.Load(), compressed+c.compressed.Load()
		written, failed = written+c.written.Load(), failed+c.writeErrors.Load()
	}
	ratio, size, perBatch := 0.0, 0.0, 0.0
	if batches > 0 {
		ratio, size, perBatch = float64(compressed)/float64(max(raw, 1)), float64(raw)/float64(batches), float64(records)/float64(batches)
	}
	for _, m := range []struct {
		name  string
		value float64
	}{
		{"producer-metrics:batch-size-avg", size},
		{"producer-metrics:compression-rate-avg", ratio},
		{"producer-metrics:connection-creation-total", float64(connects)},
		{"producer-metrics:outgoing-byte-total", float64(written)},
		{"producer-metrics:record-send-total", float64(p.run.outcomes.verdict().Acknowledged)},
		{"producer-metrics:records-per-batch-avg", perBatch},
		{"producer-metrics:request-write-error-total", float64(failed)},
	} {
		if _, err := fmt.Fprintf(p.run.out.Out, "%-45s : %.3f\n", m.name, m.value); err != nil {
			return err
		}
	}
	return nil
}

// writable makes sure, before the run, that what the run finds can be written to the file; none is needed for "".
func writable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	return f.Close()
}

func (p *reporter) writeFiles() error {
	var errs []error
	if p.run.opts.CSV != "" {
		errs = append(errs, writeCSV(p.run.opts.CSV, p.timeline))
	}
	if p.run.opts.Plot != "" {
		errs = append(errs, plotTimeline(p.run.opts.Plot, p.run.opts.Topic, p.timeline))
	}
	return errors.Join(errs...)
}

// writeCSV writes the time line with a header; the columns are those of Window.
func writeCSV(path string, timeline []Window) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := csv.NewWriter(f)
	rows := [][]string{{"second", "records", "records_per_second", "mb_per_second", "average_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "p9999_ms", "max_ms"}}
	for _, win := range timeline {
		row := []string{strconv.FormatFloat(win.Second, 'f', 3, 64), strconv.FormatInt(win.Records, 10)}
		for _, v := range []float64{win.Rate, win.MBRate, win.Average, win.P50, win.P95, win.P99, win.P999, win.P9999, win.Max} {
			row = append(row, strconv.FormatFloat(v, 'f', 3, 64))
		}
		rows = append(rows, row)
	}
	return errors.Join(w.WriteAll(rows), f.Close())
}
