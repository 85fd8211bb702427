package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/tools"
	"cairn/tools/clientconfig"
)

// EndToEndOptions are the options of `cairn bench end-to-end`.
type EndToEndOptions struct {
	Topic      string
	Records    int64
	RecordSize int           // bytes
	Acks       string        // 1 or all
	Timeout    time.Duration // longest wait for one record
}

// DefaultEndToEndOptions are the defaults.
func DefaultEndToEndOptions() EndToEndOptions {
	return EndToEndOptions{Records: 10_000, RecordSize: 100, Acks: "all", Timeout: time.Minute}
}

// Validate joins all that is wrong with the options.
func (o EndToEndOptions) Validate() error {
	var errs []error
	if o.Records < 1 {
		errs = append(errs, fmt.Errorf("--num-records %d: want at least 1", o.Records))
	}
	if o.RecordSize < 1 || o.RecordSize > recordSizeMax {
		errs = append(errs, fmt.Errorf("--record-size %d: want 1 to %d bytes", o.RecordSize, recordSizeMax))
	}
	if o.Acks != "1" && o.Acks != "all" && o.Acks != "-1" {
		errs = append(errs, fmt.Errorf("--producer-acks %s: want 1 or all; without an answer nothing can be measured", o.Acks))
	}
	if o.Timeout <= 0 {
		errs = append(errs, errors.New("--timeout-ms: want more than 0"))
	}
	return errors.Join(errs...)
}

// endToEndProgress is how many records lie between two lines of progress.
const endToEndProgress = 1000

// endToEndResult is the JSON form of a run, in milliseconds.
type endToEndResult struct {
	Records int64   `json:"records"`
	Average float64 `json:"averageMs"`
	P50     float64 `json:"p50Ms"`
	P99     float64 `json:"p99Ms"`
	P999    float64 `json:"p999Ms"`
	P9999   float64 `json:"p9999Ms"`
	Max     float64 `json:"maxMs"`
}

// EndToEnd sends one record after the other, each when the one before was read again, and measures from the call that sends it to the poll that
// returns it.
func EndToEnd(ctx context.Context, conn tools.Connection, o EndToEndOptions, out tools.Output) error {
	if err := o.Validate(); err != nil {
		return tools.UsageError{Err: err}
	}
	addrs, props, err := conn.Resolve()
	if err != nil {
		return err
	}
	for name, value := range map[string]string{"acks": o.Acks, "linger.ms": "0"} {
		if _, ok := props[name]; !ok {
			props[name] = value
		}
	}
	config, err := clientconfig.ParseProducer(props)
	if err != nil {
		return tools.UsageError{Err: err}
	}
	opts := append(config.Options(o.RecordSize), kgo.ClientID(conn.ClientID), kgo.DefaultProduceTopic(o.Topic), kgo.AllowAutoTopicCreation(),
		kgo.ConsumeTopics(o.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()), kgo.FetchMaxWait(500*time.Millisecond))
	cl, err := tools.Open(ctx, addrs, opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	tools.WarnNewTopic(ctx, cl, o.Topic, out)
	return endToEnd(ctx, cl, o, out)
}

func endToEnd(ctx context.Context, cl *kgo.Client, o EndToEndOptions, out tools.Output) error {
	if err := settleReader(ctx, cl, o); err != nil {
		return err
	}
	h := newHistogram()
	value := randomPayload(o.RecordSize, rand.Uint64())
	for i := range o.Records {
		took, err := roundTrip(ctx, cl, value.next(i), o.Timeout)
		if ctx.Err() != nil {
			return errors.Join(printEndToEnd(h, out), errors.New("interrupted: not all records were sent"))
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		_ = h.RecordValue(min(max(took.Microseconds(), 1), latencyMax.Microseconds())) // in range
		if i%endToEndProgress == 0 && !out.JSON {
			if _, err := fmt.Fprintf(out.Out, "%d\t%.3f\n", i, float64(took.Microseconds())/1000); err != nil {
				return err
			}
		}
	}
	return printEndToEnd(h, out)
}

// settleReader sends records until the reader sees one: from then on it stands at the end of all partitions that matter.
func settleReader(ctx context.Context, cl *kgo.Client, o EndToEndOptions) error {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	for {
		if err := cl.ProduceSync(ctx, &kgo.Record{Value: []byte("settling")}).FirstErr(); err != nil {
			return err
		}
		wait, stop := context.WithTimeout(ctx, time.Second)
		fetches := cl.PollFetches(wait)
		stop()
		if err := fetchError(fetches); err != nil {
			return err
		}
		if fetches.NumRecords() > 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("nothing that was written came back within %v", o.Timeout)
		}
	}
}

// roundTrip sends a value and polls until it is there. Other records, as of other writers, are passed over.
func roundTrip(ctx context.Context, cl *kgo.Client, value []byte, timeout time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	failed := make(chan error, 1)
	cl.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) { failed <- err })
	seen := false
	for !seen {
		fetches := cl.PollFetches(ctx)
		if err := fetchError(fetches); err != nil {
			return 0, err
		}
		fetches.EachRecord(func(r *kgo.Record) { seen = seen || bytes.Equal(r.Value, value) })
		if ctx.Err() != nil && !seen {
			return 0, fmt.Errorf("did not come back within %v", timeout)
		}
	}
	took := time.Since(began)
	return took, <-failed
}

func printEndToEnd(h *hdrhistogram.Histogram, out tools.Output) error {
	ms := func(percentile float64) float64 { return float64(h.ValueAtPercentile(percentile)) / 1000 }
	r := endToEndResult{
		Records: h.TotalCount(), Average: h.Mean() / 1000, P50: ms(50), P99: ms(99), P999: ms(99.9), P9999: ms(99.99), Max: float64(h.Max()) / 1000,
	}
	if out.JSON {
		return out.WriteJSON(r)
	}
	_, err := fmt.Fprintf(out.Out, "Avg latency: %.4f ms\n\nPercentiles: 50th = %.3f, 99th = %.3f, 99.9th = %.3f\n", r.Average, r.P50, r.P99, r.P999)
	return err
}
