package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Options shape a load.
type Options struct {
	Topic       string
	Partitions  int32
	RecordBytes int
	Every       time.Duration // between two records of a partition; 0: as fast as the client takes them
	MaxBuffered int           // records that may be unanswered; 0: 10,000
}

// Load is a running idempotent producer with acks=all.
type Load struct {
	Ledger *Ledger

	opts   Options
	client *kgo.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	failed int   // guarded by mu
	first  error // guarded by mu
}

// ClientOptions are those of a client that looks for a new leader as soon as one is gone, instead of after the pauses that spare real
// clusters: what is measured is the broker, not the client's patience.
func ClientOptions(bootstrap []string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(bootstrap...), kgo.MetadataMinAge(20 * time.Millisecond), kgo.DialTimeout(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }), kgo.RetryTimeout(time.Minute),
	}
}

// Start begins the load; its numbers count from 1 in each partition.
func Start(bootstrap []string, o Options) (*Load, error) {
	if o.MaxBuffered == 0 {
		o.MaxBuffered = 10000
	}
	opts := append(ClientOptions(bootstrap), kgo.DefaultProduceTopic(o.Topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(o.MaxBuffered), kgo.ProducerLinger(time.Millisecond), kgo.RecordDeliveryTimeout(2*time.Minute),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{Ledger: NewLedger(), opts: o, client: cl, cancel: cancel}
	for p := range o.Partitions {
		l.wg.Go(func() { l.run(ctx, p) })
	}
	return l, nil
}

// run produces to one partition. The client keeps the order of records and never gives a number twice.
func (l *Load) run(ctx context.Context, partition int32) {
	var tick <-chan time.Time
	if l.opts.Every > 0 {
		t := time.NewTicker(l.opts.Every)
		defer t.Stop()
		tick = t.C
	}
	for number := uint64(1); ; number++ {
		if tick != nil {
			select {
			case <-tick:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return
		}
		rec := &kgo.Record{Partition: partition, Value: EncodeRecord(number, l.opts.RecordBytes)}
		// Not ctx: a record that was handed over is to be answered, which Stop waits for.
		l.client.Produce(context.Background(), rec, func(r *kgo.Record, err error) {
			if err != nil {
				l.fail(fmt.Errorf("partition %d number %d: %w", partition, number, err))
				return
			}
			l.Ledger.Acked(partition, number, r.Offset)
		})
	}
}

func (l *Load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed++
	if l.first == nil {
		l.first = err
	}
}

// Failed tells how many records were given up, which may or may not be stored, and why the first was.
func (l *Load) Failed() (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed, l.first
}

// WaitAcked waits until n more records are acknowledged than are now.
func (l *Load) WaitAcked(ctx context.Context, n int) error {
	want := l.Ledger.Len() + n
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for l.Ledger.Len() < want {
		select {
		case <-tick.C:
		case <-ctx.Done():
			_, err := l.Failed()
			return fmt.Errorf("waiting for %d more acknowledged records, %d are missing: %w", n, want-l.Ledger.Len(), errors.Join(ctx.Err(), err))
		}
	}
	return nil
}

// Stop ends the load and waits until all its records are answered, or ctx ends.
func (l *Load) Stop(ctx context.Context) error {
	l.cancel()
	l.wg.Wait()
	err := l.client.Flush(ctx)
	if err != nil {
		err = fmt.Errorf("%d records are unanswered: %w", l.client.BufferedProduceRecords(), err)
	}
	l.client.CloseAllowingRebalance()
	return err
}
