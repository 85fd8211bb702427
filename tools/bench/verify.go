package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/tools"
	"cairn/tools/clientconfig"
)

// VerifyOptions are the options of `cairn verify`; the names are those of Kafka's verifiable producer where it has them.
type VerifyOptions struct {
	Topic       string
	Messages    int64
	Throughput  float64 // records per second; at most 0: as fast as it goes
	ValuePrefix string  // empty: one of this run alone, so that other records in the topic do not matter
	Events      bool    // one JSON object per event on Out, as Kafka's verifiable producer prints them
	Timeout     time.Duration
}

// DefaultVerifyOptions are the defaults.
func DefaultVerifyOptions() VerifyOptions {
	return VerifyOptions{Messages: 100_000, Throughput: -1, Timeout: time.Minute}
}

// verifyMax bounds the records of one run: each takes two bytes of memory.
const verifyMax = 1 << 30

// examplesMax bounds the offsets that are named for each kind of fault.
const examplesMax = 10

// fate is what is known of a number after sending.
type fate uint8

const (
	unsent fate = iota
	acknowledged
	refusedFate // the last answer said that it was not written
	undecided   // no answer, or one that leaves it open
)

// VerifyResult compares what was acknowledged with what is in the log. Examples are offsets as TOPIC-PARTITION@OFFSET, or numbers for what is
// nowhere.
type VerifyResult struct {
	Prefix     string   `json:"valuePrefix"`
	Verdict    Verdict  `json:"verdict"`
	Read       int64    `json:"read"`
	Lost       int64    `json:"lost"`       // acknowledged, not in the log
	Duplicated int64    `json:"duplicated"` // in the log more than once; without idempotence a retry may do that
	Reordered  int64    `json:"reordered"`  // behind a record of its partition that was sent later
	Unexpected int64    `json:"unexpected"` // refused, and yet in the log
	Examples   []string `json:"examples"`
}

// Validate joins all that is wrong with the options.
func (o VerifyOptions) Validate() error {
	var errs []error
	if o.Messages < 1 || o.Messages > verifyMax {
		errs = append(errs, fmt.Errorf("--max-messages %d: want 1 to %d", o.Messages, verifyMax))
	}
	if o.Timeout <= 0 {
		errs = append(errs, errors.New("--timeout-ms: want more than 0"))
	}
	return errors.Join(append(errs, checkThroughput(o.Throughput))...)
}

// verification is one run.
type verification struct {
	opts     VerifyOptions
	out      tools.Output
	prefix   string
	client   *kgo.Client
	outcomes *outcomes

	mu    sync.Mutex
	fates []fate          // guarded by mu; by number
	ends  map[int32]int64 // guarded by mu; behind the last acknowledged record, by partition

	seen   []uint8 // by number: how often it was read, up to 255
	result VerifyResult
}

// Verify sends Messages numbered records, reads the topic from where it stood to its end, and compares. An error tells of records that were lost,
// and of those of an idempotent producer that were duplicated or reordered.
func Verify(ctx context.Context, conn tools.Connection, o VerifyOptions, out tools.Output) error {
	if err := o.Validate(); err != nil {
		return tools.UsageError{Err: err}
	}
	addrs, props, err := conn.Resolve()
	if err != nil {
		return err
	}
	config, err := clientconfig.ParseProducer(props)
	if err != nil {
		return tools.UsageError{Err: err}
	}
	for _, text := range append(config.Notes, config.Warnings()...) {
		out.Warn("%s", text)
	}
	v := &verification{
		opts: o, out: out, prefix: o.ValuePrefix, outcomes: newOutcomes(config.Acks == "0"), fates: make([]fate, o.Messages), ends: map[int32]int64{},
		seen: make([]uint8, o.Messages), result: VerifyResult{Examples: []string{}},
	}
	if v.prefix == "" {
		v.prefix = strconv.FormatUint(rand.Uint64(), 36)
	}
	opts := append(config.Options(64+len(v.prefix)), kgo.ClientID(conn.ClientID), kgo.DefaultProduceTopic(o.Topic))
	if v.client, err = tools.Open(ctx, addrs, opts...); err != nil {
		return err
	}
	defer v.client.Close()
	return v.run(ctx, addrs, config)
}

func (v *verification) run(ctx context.Context, addrs []string, config clientconfig.Producer) error {
	from, err := endOffsets(ctx, v.client, v.opts.Topic, v.opts.Timeout)
	if err != nil {
		return err
	}
	v.event("startup_complete", nil)
	began := time.Now()
	sendErr := v.send(ctx, config)
	v.result.Verdict, v.result.Prefix = v.outcomes.verdict(), v.prefix
	v.event("tool_data", map[string]any{
		"sent": v.result.Verdict.Sent, "acked": v.result.Verdict.Acknowledged, "target_throughput": v.opts.Throughput,
		"avg_throughput": float64(v.result.Verdict.Acknowledged) / max(time.Since(began).Seconds(), 1e-3),
	})
	// An interrupt ends the sending; what was sent is compared all the same.
	readCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), v.opts.Timeout+time.Duration(v.opts.Messages)*20*time.Microsecond)
	defer cancel()
	if err := v.read(readCtx, addrs, from); err != nil {
		return errors.Join(sendErr, err)
	}
	v.compare()
	v.event("shutdown_complete", nil)
	return errors.Join(sendErr, v.report(config.Idempotent))
}

// send produces all numbers, or until ctx ends.
func (v *verification) send(ctx context.Context, config clientconfig.Producer) error {
	began := time.Now()
	bar := v.out.Progress("Sending to "+v.opts.Topic, v.opts.Messages, tools.InRecords)
	defer bar.Clear()
	deliver := context.WithoutCancel(ctx)
	for i := range v.opts.Messages {
		if v.opts.Throughput > 0 {
			if ahead := dueAt(i, v.opts.Throughput) - time.Since(began); ahead > paceSlack {
				timer := time.NewTimer(ahead)
				select {
				case <-timer.C:
				case <-ctx.Done():
					timer.Stop()
				}
			}
		}
		if ctx.Err() != nil {
			break
		}
		bar.Set(i)
		v.client.Produce(deliver, &kgo.Record{Value: strconv.AppendInt([]byte(v.prefix+"."), i, 10)}, func(r *kgo.Record, err error) { v.sent(i, r, err) })
	}
	flushCtx, cancel := context.WithTimeout(deliver, config.DeliveryTimeout+config.RequestTimeout)
	defer cancel()
	return v.client.Flush(flushCtx)
}

func (v *verification) sent(i int64, r *kgo.Record, err error) {
	v.outcomes.add(err)
	f := undecided
	switch {
	case err == nil && !v.outcomes.noAcks:
		f = acknowledged
	case err != nil && refused(err):
		f = refusedFate
	}
	v.mu.Lock()
	v.fates[i] = f
	if f == acknowledged {
		v.ends[r.Partition] = max(v.ends[r.Partition], r.Offset+1)
	}
	v.mu.Unlock()
	if !v.opts.Events {
		return
	}
	event := map[string]any{"key": nil, "value": string(r.Value), "topic": v.opts.Topic}
	if err != nil {
		event["exception"], event["message"] = errorName(err), err.Error()
		v.event("producer_send_error", event)
		return
	}
	event["partition"], event["offset"] = r.Partition, r.Offset
	v.event("producer_send_success", event)
}

// event prints one of Kafka's events. Sends call it from the client's one callback goroutine, before and after which run calls it.
func (v *verification) event(name string, fields map[string]any) {
	if !v.opts.Events {
		return
	}
	all := map[string]any{"timestamp": time.Now().UnixMilli(), "name": name}
	for k, value := range fields {
		all[k] = value
	}
	_ = v.out.WriteJSON(all) // a broken output shows when the result is printed
}

// read goes from the offsets on to where the topic ends now.
func (v *verification) read(ctx context.Context, addrs []string, from map[int32]int64) error {
	to, err := endOffsets(ctx, v.client, v.opts.Topic, v.opts.Timeout)
	if err != nil {
		return err
	}
	v.mu.Lock()
	for p, end := range v.ends { // with acks=1 what was acknowledged may not be readable yet
		to[p] = max(to[p], end)
	}
	v.mu.Unlock()
	assign, left := map[int32]kgo.Offset{}, map[int32]int64{}
	for p, end := range to {
		if start := from[p]; start < end {
			assign[p], left[p] = kgo.NewOffset().At(start), end
		}
	}
	if len(left) == 0 {
		return nil
	}
	cl, err := tools.Open(ctx, addrs, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{v.opts.Topic: assign}), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.KeepControlRecords())
	if err != nil {
		return err
	}
	defer cl.Close()
	newest := map[int32]int64{} // largest number read so far, by partition
	bar := v.out.Progress("Reading "+v.opts.Topic, v.result.Verdict.Sent, tools.InRecords)
	defer bar.Clear()
	for len(left) > 0 {
		fetches := cl.PollRecords(ctx, 100_000)
		if err := fetchError(fetches); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("reading back did not reach the end of %d partitions in time; --timeout-ms allows for more", len(left))
		}
		fetches.EachRecord(func(r *kgo.Record) {
			v.note(r, newest)
			if end, ok := left[r.Partition]; ok && r.Offset+1 >= end {
				delete(left, r.Partition)
			}
		})
		bar.Set(v.result.Read)
	}
	return nil
}

// note counts one record that was read.
func (v *verification) note(r *kgo.Record, newest map[int32]int64) {
	text, ok := strings.CutPrefix(string(r.Value), v.prefix+".")
	n, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil || n < 0 || n >= v.opts.Messages || r.Attrs.IsControl() {
		return
	}
	v.result.Read++
	at := fmt.Sprintf("%s-%d@%d", r.Topic, r.Partition, r.Offset)
	if v.seen[n] > 0 {
		v.result.Duplicated++
		v.example("duplicated", at)
	} else if last, ok := newest[r.Partition]; ok && n < last {
		v.result.Reordered++
		v.example("reordered", at)
	}
	if v.seen[n] < 255 {
		v.seen[n]++
	}
	newest[r.Partition] = max(n, newest[r.Partition])
}

func (v *verification) example(kind, where string) {
	if len(v.result.Examples) < 4*examplesMax {
		v.result.Examples = append(v.result.Examples, kind+" "+where)
	}
}

// compare looks for what was acknowledged and is missing, and for what was refused and is there.
func (v *verification) compare() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for n, f := range v.fates {
		switch {
		case f == acknowledged && v.seen[n] == 0:
			v.result.Lost++
			v.example("lost", fmt.Sprintf("%s.%d", v.prefix, n))
		case f == refusedFate && v.seen[n] > 0:
			v.result.Unexpected++
			v.example("unexpected", fmt.Sprintf("%s.%d", v.prefix, n))
		}
	}
}

func (v *verification) report(idempotent bool) error {
	r := v.result
	if v.out.JSON {
		if err := v.out.WriteJSON(r); err != nil {
			return err
		}
	} else if !v.opts.Events {
		if _, err := fmt.Fprintf(v.out.Out, "%s\n%d read: %d lost, %d duplicated, %d reordered, %d unexpected\n", r.Verdict, r.Read, r.Lost, r.Duplicated,
			r.Reordered, r.Unexpected); err != nil {
			return err
		}
	}
	for _, e := range r.Examples {
		v.out.Note("%s", e)
	}
	// Without idempotence, retries may repeat and overtake, and a refusal may follow an attempt that was written.
	faults := r.Lost
	if idempotent {
		faults += r.Duplicated + r.Reordered
	}
	if faults > 0 {
		return fmt.Errorf("%d records are not where they were acknowledged to be", faults)
	}
	return nil
}
