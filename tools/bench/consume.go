package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/tools"
	"cairn/tools/clientconfig"
)

// ConsumeOptions are the options of `cairn bench consume`; the names are those of Kafka's tool.
type ConsumeOptions struct {
	Topic      string
	Group      string // empty: a new one
	Records    int64
	FetchSize  int // bytes of one partition in an answer
	FromLatest bool
	Timeout    time.Duration // longest wait for the next record
	Interval   time.Duration
	Detailed   bool // a line at each interval
	HideHeader bool
	Print      bool // print the consumer's properties and end
}

// DefaultConsumeOptions are the defaults of Kafka's tool.
func DefaultConsumeOptions() ConsumeOptions {
	return ConsumeOptions{FetchSize: 1 << 20, Timeout: 10 * time.Second, Interval: 5 * time.Second}
}

// Validate joins all that is wrong with the options.
func (o ConsumeOptions) Validate() error {
	var errs []error
	if o.Records < 1 {
		errs = append(errs, fmt.Errorf("--num-records %d: want at least 1", o.Records))
	}
	if o.FetchSize < 1 || o.FetchSize > 1<<30 {
		errs = append(errs, fmt.Errorf("--fetch-size %d: want 1 to %d bytes", o.FetchSize, 1<<30))
	}
	if o.Timeout <= 0 {
		errs = append(errs, errors.New("--timeout: want more than 0 ms"))
	}
	if o.Interval < 10*time.Millisecond {
		errs = append(errs, errors.New("--reporting-interval: want at least 10 ms"))
	}
	return errors.Join(errs...)
}

const (
	consumeTime   = "2006-01-02 15:04:05.000"
	consumeHeader = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
	detailHeader  = "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)

// consumeResult is the JSON form of a run. MB is 2^20 bytes, times are in milliseconds; fetch rates leave the time of rebalances out.
type consumeResult struct {
	Start     time.Time `json:"start"`
	End       time.Time `json:"end"`
	MB        float64   `json:"mb"`
	Records   int64     `json:"records"`
	MBRate    float64   `json:"mbPerSecond"`
	Rate      float64   `json:"recordsPerSecond"`
	Rebalance int64     `json:"rebalanceMs"`
	Fetch     int64     `json:"fetchMs"`
	FetchMB   float64   `json:"fetchMbPerSecond"`
	FetchRate float64   `json:"fetchRecordsPerSecond"`
}

// consumption is one run of Consume.
type consumption struct {
	opts   ConsumeOptions
	out    tools.Output
	client *kgo.Client
	began  time.Time

	records, bytes int64

	mu         sync.Mutex
	revoked    time.Time     // guarded by mu; when the running rebalance began, zero: none runs
	rebalances time.Duration // guarded by mu
}

// Consume reads the topic as a member of a group until Records have come, and prints Kafka's lines or one JSON object.
func Consume(ctx context.Context, conn tools.Connection, o ConsumeOptions, out tools.Output) error {
	addrs, props, err := conn.Resolve()
	if err != nil {
		return err
	}
	o.fill(props)
	config, err := clientconfig.ParseConsumer(props)
	if err != nil {
		return tools.UsageError{Err: err}
	}
	if o.Print {
		if out.JSON {
			return out.WriteJSON(config.Values())
		}
		return config.Print(out.Out)
	}
	if err := o.Validate(); err != nil {
		return tools.UsageError{Err: err}
	}
	for _, text := range config.Warnings() {
		out.Warn("%s", text)
	}
	c := &consumption{opts: o, out: out, began: time.Now()}
	c.revoked = c.began
	opts := append(config.FetchOptions(), config.GroupOptions()...)
	opts = append(opts, kgo.ClientID(conn.ClientID), kgo.ConsumeTopics(o.Topic), kgo.OnPartitionsAssigned(c.assigned), kgo.OnPartitionsRevoked(c.lost), kgo.OnPartitionsLost(c.lost))
	if c.client, err = tools.Open(ctx, addrs, opts...); err != nil {
		return err
	}
	defer c.client.Close()
	return c.run(ctx)
}

// fill gives properties that nobody set the values of Kafka's tool.
func (o *ConsumeOptions) fill(props map[string]string) {
	defaults := map[string]string{"max.partition.fetch.bytes": fmt.Sprint(o.FetchSize), "auto.offset.reset": "earliest", "receive.buffer.bytes": "65536"}
	if o.FromLatest {
		defaults["auto.offset.reset"] = "latest"
	}
	if o.Group == "" && props["group.id"] == "" {
		o.Group = fmt.Sprintf("perf-consumer-%d", rand.IntN(100_000))
	}
	if o.Group != "" {
		props["group.id"] = o.Group
	}
	for name, value := range defaults {
		if _, ok := props[name]; !ok {
			props[name] = value
		}
	}
}

func (c *consumption) assigned(context.Context, *kgo.Client, map[string][]int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.revoked.IsZero() {
		c.rebalances += time.Since(c.revoked)
		c.revoked = time.Time{}
	}
}

func (c *consumption) lost(context.Context, *kgo.Client, map[string][]int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.revoked.IsZero() {
		c.revoked = time.Now()
	}
}

// rebalancing is the time spent without an assignment until now.
func (c *consumption) rebalancing() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.revoked.IsZero() {
		return c.rebalances
	}
	return c.rebalances + time.Since(c.revoked)
}

func (c *consumption) run(ctx context.Context) error {
	if c.opts.Detailed && !c.out.JSON {
		if err := c.header(detailHeader); err != nil {
			return err
		}
	}
	var bar *tools.Progress
	if !c.opts.Detailed {
		bar = c.out.Progress("Reading "+c.opts.Topic, c.opts.Records, tools.InRecords)
		defer bar.Clear()
	}
	last, lastRecord := *c.snapshot(c.began), time.Now()
	for c.records < c.opts.Records {
		if ctx.Err() != nil {
			return errors.Join(c.finish(), errors.New("interrupted: not all records were read"))
		}
		wait, cancel := context.WithTimeout(ctx, min(c.opts.Interval, c.opts.Timeout))
		fetches := c.client.PollRecords(wait, 10_000)
		cancel()
		if err := fetchError(fetches); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			c.records++
			c.bytes += int64(len(r.Key) + len(r.Value))
		})
		bar.Set(c.records)
		now := time.Now()
		if !fetches.Empty() && fetches.NumRecords() > 0 {
			lastRecord = now
		}
		if c.opts.Detailed && now.Sub(last.End) >= c.opts.Interval {
			next := c.snapshot(c.began)
			if err := c.detail(last, *next); err != nil {
				return err
			}
			last = *next
		}
		if now.Sub(lastRecord) > c.opts.Timeout {
			bar.Clear()
			c.out.Warn("Exiting before consuming the expected number of records: timeout (%d ms) exceeded. `--timeout` allows for a longer wait.", c.opts.Timeout.Milliseconds())
			if c.records == 0 {
				c.out.Warn("No record came at all; `cairn get-offsets --topic %s` tells whether there are any.", c.opts.Topic)
			}
			break
		}
	}
	bar.Clear()
	if err := c.finish(); err != nil || c.records >= c.opts.Records {
		return err
	}
	return fmt.Errorf("%d of %d records were read", c.records, c.opts.Records)
}

// fetchError is the first error of the poll that is not the end of its wait.
func fetchError(fetches kgo.Fetches) error {
	for _, e := range fetches.Errors() {
		if !errors.Is(e.Err, context.DeadlineExceeded) && !errors.Is(e.Err, context.Canceled) {
			return fmt.Errorf("%s-%d: %w", e.Topic, e.Partition, e.Err)
		}
	}
	return nil
}

// snapshot sums up what was read since start.
func (c *consumption) snapshot(start time.Time) *consumeResult {
	rebalance := c.rebalancing()
	r := &consumeResult{Start: start, End: time.Now(), MB: float64(c.bytes) / (1 << 20), Records: c.records, Rebalance: rebalance.Milliseconds()}
	span := r.End.Sub(start)
	fetch := max(span-rebalance, time.Millisecond)
	r.Fetch = fetch.Milliseconds()
	r.FetchMB, r.FetchRate = r.MB/fetch.Seconds(), float64(r.Records)/fetch.Seconds()
	if s := span.Seconds(); s > 0 {
		r.MBRate, r.Rate = r.MB/s, float64(r.Records)/s
	}
	return r
}

// detail prints what came between two snapshots, sums and rates as Kafka's tool has them.
func (c *consumption) detail(from, to consumeResult) error {
	span := to.End.Sub(from.End)
	rebalance := to.Rebalance - from.Rebalance
	fetch := max(span.Milliseconds()-rebalance, 1)
	mb, records := to.MB-from.MB, to.Records-from.Records
	seconds := span.Seconds()
	if c.out.JSON {
		return nil
	}
	_, err := fmt.Fprintf(c.out.Out, "%s, %d, %.4f, %.4f, %d, %.4f, %d, %d, %.4f, %.4f\n", to.End.Format(consumeTime), 0, to.MB, mb/seconds, to.Records,
		float64(records)/seconds, rebalance, fetch, mb*1000/float64(fetch), float64(records)*1000/float64(fetch))
	return err
}

func (c *consumption) header(text string) error {
	if c.opts.HideHeader {
		return nil
	}
	_, err := fmt.Fprintln(c.out.Out, text)
	return err
}

func (c *consumption) finish() error {
	r := c.snapshot(c.began)
	if c.out.JSON {
		return c.out.WriteJSON(r)
	}
	if c.opts.Detailed {
		return nil
	}
	if err := c.header(consumeHeader); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.out.Out, "%s, %s, %.4f, %.4f, %d, %.4f, %d, %d, %.4f, %.4f\n", r.Start.Format(consumeTime), r.End.Format(consumeTime), r.MB,
		r.MBRate, r.Records, r.Rate, r.Rebalance, r.Fetch, r.FetchMB, r.FetchRate)
	return err
}
