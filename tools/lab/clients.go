package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// sending says how records are produced: one at a time, each awaited.
type sending struct {
	topic   string
	prefix  string // of the values: prefix0, prefix1, ...
	first   int    // number of the first value
	count   int
	acksAll bool
	retries int
}

// sent is how it went, in the order of the records.
type sent struct {
	offsets []int64 // of the acknowledged ones
	errs    []error // of the others
}

// String sums up, for a person.
func (s sent) String() string {
	var parts []string
	switch n := len(s.offsets); {
	case n == 1:
		parts = append(parts, fmt.Sprintf("1 acknowledged at offset %d", s.offsets[0]))
	case n > 1:
		parts = append(parts, fmt.Sprintf("%d acknowledged at offsets %d..%d", n, s.offsets[0], s.offsets[n-1]))
	}
	counts := map[string]int{}
	var order []string
	for _, err := range s.errs {
		name := errorName(err)
		if counts[name]++; counts[name] == 1 {
			order = append(order, name)
		}
	}
	for _, name := range order {
		parts = append(parts, fmt.Sprintf("%d failed with %s", counts[name], name))
	}
	return strings.Join(parts, ", ")
}

// errorName is Kafka's name of an error, or its text.
func errorName(err error) string {
	var known *kerr.Error
	switch {
	case !errors.As(err, &known):
		return err.Error()
	case known.Code == kerr.NotLeaderForPartition.Code:
		return "NOT_LEADER_OR_FOLLOWER" // the library keeps the name of old
	}
	return known.Message
}

// consecutive reports whether the offsets are from, from+1, ...
func consecutive(offsets []int64, from int64) bool {
	for i, o := range offsets {
		if o != from+int64(i) {
			return false
		}
	}
	return true
}

// clientOptions are those of a client that looks for a new leader as soon as one is gone: what is shown is the broker, not the client's
// patience.
func (w *world) clientOptions() []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(w.addresses()...), kgo.ClientID("cairn-lab"), kgo.MetadataMinAge(20 * time.Millisecond), kgo.DialTimeout(2 * time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }), kgo.RetryTimeout(20 * time.Second),
	}
}

// produce sends records with a client. Without retries, and with acks=1, the client is not idempotent, as in Kafka's.
func (w *world) produce(ctx context.Context, s sending) (sent, error) {
	opts := append(w.clientOptions(), kgo.DefaultProduceTopic(s.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordRetries(s.retries), kgo.ProducerLinger(0), kgo.ProduceRequestTimeout(10*time.Second), kgo.RecordDeliveryTimeout(30*time.Second))
	if !s.acksAll {
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()))
	}
	if !s.acksAll || s.retries == 0 {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return sent{}, err
	}
	defer cl.Close()
	var res sent
	begun := time.Now()
	for i := range s.count {
		rec, err := cl.ProduceSync(ctx, &kgo.Record{Value: fmt.Appendf(nil, "%s%d", s.prefix, s.first+i)}).First()
		if ctx.Err() != nil {
			return res, ctx.Err()
		}
		if err != nil {
			res.errs = append(res.errs, err)
		} else {
			res.offsets = append(res.offsets, rec.Offset)
		}
		w.narrator.waiting(fmt.Sprintf("producing %d records", s.count), res.String(), begun, time.Duration(s.count)*30*time.Second)
	}
	return res, nil
}

// emptyPoll is how long a consumer looks for records in a partition that is said to have none.
const emptyPoll = 2 * time.Second

// consume reads the first partition of a topic from its beginning up to the high watermark as of now.
func (w *world) consume(ctx context.Context, topic string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	var start, end int64
	_, _, err := w.await(ctx, "the leader to serve", 10*time.Second, func(ctx context.Context) (seen string, done bool, err error) {
		start, end, err = w.offsets(ctx, topic) // clients try again too while a leader is only just elected
		return "", err == nil, err
	})
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(w.clientOptions(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		topic: {0: kgo.NewOffset().At(start)},
	}))...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if start == end {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, emptyPoll)
		defer stop()
	}
	var values []string
	next := start
	for next < end || start == end {
		fetches := cl.PollFetches(ctx)
		fetches.EachRecord(func(r *kgo.Record) {
			if next = r.Offset + 1; next <= end || start == end {
				values = append(values, string(r.Value))
			}
		})
		if ctx.Err() != nil && start == end {
			break // the time that an empty partition is given is over
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return values, fmt.Errorf("consuming %s, offsets %d to %d: %w", topic, start, end, errs[0].Err)
		}
	}
	return values, nil
}

// numbered reports whether the values are prefix0 to prefix(n-1).
func numbered(values []string, prefix string, n int) bool {
	if len(values) != n {
		return false
	}
	for i, v := range values {
		if v != fmt.Sprintf("%s%d", prefix, i) {
			return false
		}
	}
	return true
}

// summary tells how many values there are, and the first and the last.
func summary(values []string) string {
	text := recordsText(len(values))
	if len(values) > 0 {
		text += fmt.Sprintf(", %s to %s", values[0], values[len(values)-1])
	}
	return text
}
