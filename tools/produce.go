package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Defaults of the console producer: those of Kafka 4.3's producer.
const (
	DefaultDeliveryTimeout = 120 * time.Second
	DefaultRequestTimeout  = 30 * time.Second
	DefaultLinger          = 5 * time.Millisecond
	DefaultMaxMemoryBytes  = 32 << 20
	DefaultMaxRequestBytes = 1<<20 + 12 // what a topic takes by default
)

// ProduceOptions are the options of the console producer.
type ProduceOptions struct {
	Topic            string
	Partition        int32  // -1: by key hash, or sticky for records without key
	File             string // input; empty: In
	In               io.Reader
	JSONInput        bool     // objects as `cairn consume --json` prints them, instead of lines
	ReaderProperties []string // NAME=VALUE, for lines
	Codec            string   // none, gzip, snappy, lz4, zstd
	Acks             string   // 0, 1, all; idempotence is on with all
	Sync             bool     // wait for each record before the next
	Retries          int      // -1: until the delivery timeout
	Linger           time.Duration
	RequestTimeout   time.Duration
	DeliveryTimeout  time.Duration
	MaxMemoryBytes   int
	MaxRequestBytes  int32
}

// DefaultProduceOptions are Kafka's defaults, with standard input.
func DefaultProduceOptions() ProduceOptions {
	return ProduceOptions{
		Partition: -1, In: os.Stdin, Codec: "none", Acks: "all", Retries: -1, Linger: DefaultLinger, RequestTimeout: DefaultRequestTimeout,
		DeliveryTimeout: DefaultDeliveryTimeout, MaxMemoryBytes: DefaultMaxMemoryBytes, MaxRequestBytes: DefaultMaxRequestBytes,
	}
}

// producedSummary is the JSON form of a finished run.
type producedSummary struct {
	Topic  string `json:"topic"`
	Sent   int64  `json:"sent"`
	Acked  int64  `json:"acked"`
	Failed int64  `json:"failed"`
	Error  string `json:"error,omitempty"` // the first one
}

// delivery counts the outcomes of records; the client calls done from goroutines of its own.
type delivery struct {
	mu       sync.Mutex
	acked    int64 // guarded by mu
	failed   int64 // guarded by mu
	firstErr error // guarded by mu
}

func (d *delivery) done(_ *kgo.Record, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.acked++
		return
	}
	d.failed++
	if d.firstErr == nil {
		d.firstErr = err
	}
}

// hint is what to look at after the first error, where that does not say so itself.
func (d *delivery) hint() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case errors.Is(d.firstErr, kerr.MessageTooLarge):
		return "; --max-request-size and the topic's max.message.bytes bound what is sent"
	case errors.Is(d.firstErr, kerr.InvalidTopicException):
		return "; names have letters, digits, '.', '_' and '-' alone, and internal topics take no records of clients"
	default:
		return ""
	}
}

func (d *delivery) summary(topic string) producedSummary {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := producedSummary{Topic: topic, Sent: d.acked + d.failed, Acked: d.acked, Failed: d.failed}
	if d.firstErr != nil {
		s.Error = d.firstErr.Error()
	}
	return s
}

// Produce writes one record per input line (or JSON object) and returns when all are answered. The error counts the records that failed.
// When ctx ends, what was read is still delivered; the second signal of a person kills the process.
func Produce(ctx context.Context, conn Connection, o ProduceOptions, out Output) error {
	opts, err := o.clientOptions()
	if err != nil {
		return UsageError{err}
	}
	reader, closeInput, err := o.reader(out)
	if err != nil {
		return err
	}
	defer closeInput()
	cl, err := conn.open(ctx, out, opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	if o.Partition >= 0 { // a topic that does not exist may be created by the first record; all else shows then too
		if _, err := partitionsOf(ctx, cl, o.Topic, o.Partition); errors.Is(err, errNoPartition) {
			return err
		}
	}
	WarnNewTopic(ctx, cl, o.Topic, out)
	var d delivery
	readErr := o.pump(ctx, cl, reader, &d, out)
	flushCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.DeliveryTimeout+o.RequestTimeout)
	defer cancel()
	flushErr := cl.Flush(flushCtx)
	closeInput() // takes the bar away before the result is printed
	sum := d.summary(o.Topic)
	if out.JSON {
		readErr = errors.Join(readErr, out.writeJSON(sum))
	}
	if sum.Failed > 0 {
		readErr = errors.Join(readErr, fmt.Errorf("%d of %d records to topic '%s' were not acknowledged; the first: %s", sum.Failed, sum.Sent, o.Topic, sum.Error+d.hint()))
	}
	if flushErr != nil {
		readErr = errors.Join(readErr, fmt.Errorf("%d records are unanswered and may or may not be written: %v; "+
			"`cairn topics describe --topic %s` tells whether its partitions have leaders", cl.BufferedProduceRecords(), flushErr, o.Topic))
	}
	return readErr
}

func (o ProduceOptions) clientOptions() ([]kgo.Opt, error) {
	codec, err := parseCodec(o.Codec)
	if err != nil {
		return nil, fmt.Errorf("--compression-codec %s: %w", o.Codec, err)
	}
	opts, err := acksOptions(o.Acks)
	if err != nil {
		return nil, fmt.Errorf("--request-required-acks %s: %w", o.Acks, err)
	}
	opts = append(opts,
		kgo.DefaultProduceTopic(o.Topic), kgo.AllowAutoTopicCreation(), kgo.ProducerBatchCompression(codec),
		kgo.ProducerLinger(o.Linger), kgo.ProduceRequestTimeout(o.RequestTimeout),
		kgo.MaxBufferedBytes(o.MaxMemoryBytes), kgo.MaxBufferedRecords(max(1, o.MaxMemoryBytes/256)), kgo.ProducerBatchMaxBytes(o.MaxRequestBytes))
	if !o.JSONInput { // there records may bring timestamps, from which the client would count; send has a deadline of its own for them
		opts = append(opts, kgo.RecordDeliveryTimeout(o.DeliveryTimeout))
	}
	if o.Retries >= 0 {
		opts = append(opts, kgo.RecordRetries(o.Retries))
	}
	if o.Partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	return opts, nil
}

// reader opens the input. Reading a file shows a bar; closing the input takes it away.
func (o ProduceOptions) reader(out Output) (recordReader, func(), error) {
	props, err := parseReaderProperties(o.ReaderProperties)
	if err != nil {
		return nil, nil, UsageError{err}
	}
	in, closeInput := o.In, func() {}
	if o.File != "" {
		f, err := os.Open(o.File)
		if err != nil {
			return nil, nil, err
		}
		info, err := f.Stat()
		if err != nil {
			return nil, nil, errors.Join(err, f.Close())
		}
		bar := out.Progress("Producing "+o.File, info.Size(), InBytes)
		in, closeInput = progressReader{f, bar}, func() {
			bar.Clear()
			_ = f.Close() // only read
		}
	}
	if o.JSONInput {
		return newJSONReader(in), closeInput, nil
	}
	return newLineReader(in, props), closeInput, nil
}

// readRecord is one step of the input.
type readRecord struct {
	rec *kgo.Record
	err error
}

// pump hands records to the client until the input or ctx ends. Memory is bounded by the client's buffer, at which Produce blocks.
func (o ProduceOptions) pump(ctx context.Context, cl *kgo.Client, reader recordReader, d *delivery, out Output) error {
	prompt := o.File == "" && isTerminal(o.In)
	// A read of a terminal cannot be interrupted, so it has a goroutine of its own; it ends with the input, or with the process.
	input, stopped := make(chan readRecord, 64), make(chan struct{})
	defer close(stopped)
	go func() {
		defer close(input)
		for {
			rec, err := reader.next()
			select {
			case input <- readRecord{rec, err}:
			case <-stopped:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		if prompt {
			_, _ = fmt.Fprint(out.Err, ">")
		}
		select {
		case <-ctx.Done():
			return nil
		case r := <-input:
			if errors.Is(r.err, io.EOF) {
				return nil
			}
			if r.err != nil {
				return r.err
			}
			if o.Partition >= 0 {
				r.rec.Partition = o.Partition
			}
			o.send(context.WithoutCancel(ctx), cl, r.rec, d)
		}
	}
}

// send hands one record to the client, which may block until its buffer has room; with Sync it waits for the answer.
func (o ProduceOptions) send(ctx context.Context, cl *kgo.Client, rec *kgo.Record, d *delivery) {
	cancel := func() {}
	if o.JSONInput {
		ctx, cancel = context.WithTimeout(ctx, o.DeliveryTimeout)
	}
	if o.Sync {
		rec, err := cl.ProduceSync(ctx, rec).First()
		cancel()
		d.done(rec, err)
		return
	}
	cl.Produce(ctx, rec, func(r *kgo.Record, err error) {
		cancel()
		d.done(r, err)
	})
}
