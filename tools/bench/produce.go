package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/tools"
	"cairn/tools/clientconfig"
)

// ProduceOptions are the options of `cairn bench produce`; the names are those of Kafka's tool where it has them.
type ProduceOptions struct {
	Topic             string
	Records           int64 // over all producers
	RecordSize        int   // bytes
	PayloadFile       string
	PayloadDelimiter  string
	PayloadMonotonic  bool
	Throughput        float64 // records per second over all producers; at most 0: as fast as it goes
	Producers         int     // clients in this process
	OpenLoop          bool    // latency from the moment the pace wanted the record sent; needs Throughput
	Sync              bool    // each producer waits for the answer before the next record
	TransactionalID   string  // several producers add -1, -2, ...
	TransactionLength time.Duration
	Warmup            int64 // records that do not count for the steady state
	Interval          time.Duration
	CSV               string // file of the time line
	Plot              string // .svg or .png
	PrintConfig       bool   // print the producer's properties and end
	PrintMetrics      bool   // print the clients' counters at the end
}

// DefaultProduceOptions are the defaults of Kafka's tool.
func DefaultProduceOptions() ProduceOptions {
	return ProduceOptions{
		Throughput: -1, Producers: 1, PayloadDelimiter: `\n`, TransactionLength: 3 * time.Second, Interval: 5 * time.Second,
	}
}

// recordSizeMax bounds --record-size; the broker's own limit is lower.
const recordSizeMax = 1 << 30

// producersMax bounds the clients in one process.
const producersMax = 1000

// Validate joins all that is wrong with the options.
func (o ProduceOptions) Validate() error {
	var errs []error
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	payloads := 0
	for _, given := range []bool{o.RecordSize != 0, o.PayloadFile != "", o.PayloadMonotonic} {
		if given {
			payloads++
		}
	}
	add(o.Records < 1, "--num-records %d: want at least 1", o.Records)
	add(payloads != 1, "say in one way what to send: --record-size, --payload-file, or --payload-monotonic")
	add(o.RecordSize < 0 || o.RecordSize > recordSizeMax, "--record-size %d: want 1 to %d bytes", o.RecordSize, recordSizeMax)
	add(o.Producers < 1 || o.Producers > producersMax, "--producers %d: want 1 to %d", o.Producers, producersMax)
	add(o.Interval < 10*time.Millisecond, "--reporting-interval: want at least 10 ms")
	add(o.Warmup < 0 || o.Warmup > 0 && o.Warmup >= o.Records, "--warmup-records %d: want less than --num-records", o.Warmup)
	add(o.OpenLoop && o.Throughput <= 0, "--open-loop needs --throughput: the pace that latencies are measured against")
	add(o.OpenLoop && o.Sync, "--open-loop and --sync exclude each other")
	add(o.TransactionLength <= 0, "--transaction-duration-ms: want more than 0")
	errs = append(errs, checkThroughput(o.Throughput), checkPlotName(o.Plot))
	return errors.Join(errs...)
}

// produceRun is one run of Produce.
type produceRun struct {
	opts     ProduceOptions
	config   clientconfig.Producer
	out      tools.Output
	workers  []*worker
	outcomes *outcomes
	began    time.Time // the run's clock counts from here
}

// Produce runs the load and prints Kafka's lines, or one JSON object. It returns an error when a record was not acknowledged. When ctx ends nothing
// more is sent; what was sent is waited for, and reported.
func Produce(ctx context.Context, conn tools.Connection, o ProduceOptions, out tools.Output) error {
	addrs, props, err := conn.Resolve()
	if err != nil {
		return err
	}
	if o.TransactionalID != "" {
		props["transactional.id"] = o.TransactionalID
	}
	config, err := clientconfig.ParseProducer(props)
	if err != nil {
		return tools.UsageError{Err: err}
	}
	if o.PrintConfig {
		if out.JSON {
			return out.WriteJSON(config.Values())
		}
		return config.Print(out.Out)
	}
	if err := o.Validate(); err != nil {
		return tools.UsageError{Err: err}
	}
	if err := errors.Join(writable(o.CSV), writable(o.Plot)); err != nil {
		return err
	}
	for _, text := range append(config.Notes, config.Warnings()...) {
		out.Warn("%s", text)
	}
	run := &produceRun{opts: o, config: config, out: out, outcomes: newOutcomes(config.Acks == "0")}
	defer run.close()
	if err := run.open(ctx, conn, addrs); err != nil {
		return err
	}
	tools.WarnNewTopic(ctx, run.workers[0].client, o.Topic, out)
	return run.run(ctx)
}

// open makes the workers.
func (r *produceRun) open(ctx context.Context, conn tools.Connection, addrs []string) error {
	n := int64(r.opts.Producers)
	for i := range n {
		w := &worker{
			run: r, records: share(r.opts.Records, n, i), rate: r.opts.Throughput / float64(n), meter: newMeter(share(r.opts.Warmup, n, i)),
		}
		w.counters.run = r
		var err error
		if w.payload, err = r.opts.payload(uint64(i + 1)); err != nil {
			return err
		}
		config := r.config
		opts := []kgo.Opt{kgo.ClientID(conn.ClientID), kgo.DefaultProduceTopic(r.opts.Topic), kgo.AllowAutoTopicCreation(), kgo.WithHooks(&w.counters)}
		opts = append(opts, config.Options(w.payload.max)...)
		if id := config.TransactionalID; id != "" && n > 1 {
			opts = append(opts, kgo.TransactionalID(fmt.Sprintf("%s-%d", id, i+1)))
		}
		if w.client, err = tools.Open(ctx, addrs, opts...); err != nil {
			return err
		}
		r.workers = append(r.workers, w)
	}
	return nil
}

func (r *produceRun) close() {
	for _, w := range r.workers {
		w.client.Close()
	}
}

// share is part i of total divided among n, the first ones getting what is over.
func share(total, n, i int64) int64 {
	part := total / n
	if i < total%n {
		part++
	}
	return part
}

// now is the run's clock.
func (r *produceRun) now() time.Duration { return time.Since(r.began) }

// run sends, reports at each interval, and sums up.
func (r *produceRun) run(ctx context.Context) error {
	r.began = time.Now()
	var sending sync.WaitGroup
	errs := make([]error, len(r.workers))
	for i, w := range r.workers {
		sending.Go(func() { errs[i] = w.work(ctx) })
	}
	done := make(chan struct{})
	go func() {
		sending.Wait()
		close(done)
	}()
	rep := newReporter(r)
	tick := time.NewTicker(r.opts.Interval)
	defer tick.Stop()
	for working := true; working; {
		select {
		case <-tick.C:
			rep.window(true)
		case <-done:
			working = false
		}
	}
	err := errors.Join(errs...)
	if reportErr := rep.finish(); reportErr != nil {
		err = errors.Join(err, reportErr)
	}
	if ctx.Err() != nil {
		err = errors.Join(err, errors.New("interrupted: not all records were sent"))
	}
	return errors.Join(err, r.outcomes.verdict().Err())
}
