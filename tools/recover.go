package tools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/engine"
	"cairn/wire/batch"
	"cairn/wire/private"
)

// The headers that tell where a recovered record comes from; values are decimal numbers, but for the topic.
const (
	headerOriginTopic     = "cairn.origin.topic"
	headerOriginPartition = "cairn.origin.partition"
	headerOriginEpoch     = "cairn.origin.leader.epoch"
	headerOriginOffset    = "cairn.origin.offset"
)

// RecoverOptions says which quarantined records to produce again, and where to.
type RecoverOptions struct {
	Topic     string
	Partition int32
	Broker    int32  // whose quarantine; -1: of each live broker
	DataDir   string // alternatively, the data directory of a stopped broker
	To        string // the topic that gets the records
	Remove    bool   // delete from quarantine what was recovered; only from live brokers
	Again     bool   // produce also what was recovered before
}

// recovered is the JSON form of what was recovered from one quarantine.
type recovered struct {
	Topic     string      `json:"topic"`
	Partition int32       `json:"partition"`
	Source    string      `json:"source"`
	To        string      `json:"to"`
	Records   int64       `json:"records"`
	Damaged   int         `json:"damagedBatches"`
	Ranges    []LostRange `json:"ranges"`
	Removed   bool        `json:"removed"`
	Skipped   int64       `json:"skippedRecords"` // recovered before

	last private.Quarantine
}

// Recover produces the records in quarantine to a topic, each with headers that name where it comes from. Key, value, headers
// and timestamp stay; the order is that of leader epochs and offsets. What was recovered before is passed over, and
// ErrRecovered if that is all there is.
func Recover(ctx context.Context, conn Connection, o RecoverOptions, out Output) error {
	if err := o.validate(); err != nil {
		return err
	}
	cl, err := conn.open(ctx, out, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := topicExists(ctx, cl, o.To); err != nil {
		return err
	}
	if o.DataDir != "" {
		return o.recoverStored(ctx, conn, cl, out)
	}
	return o.recoverLive(ctx, conn, cl, out)
}

func (o RecoverOptions) validate() error {
	switch {
	case o.Topic == "" || o.Partition < 0:
		return UsageError{errors.New("say which records with --topic and --partition; `cairn losses` lists what was lost")}
	case o.To == "":
		return UsageError{errors.New("say with --to which topic gets the records")}
	case o.DataDir != "" && o.Broker >= 0:
		return UsageError{errors.New("--broker and --data-dir exclude each other: a live broker is asked, the directory of a stopped one is read")}
	case o.DataDir != "" && o.Remove:
		return UsageError{errors.New("--remove needs a live broker: a data directory is only read")}
	}
	return nil
}

func topicExists(ctx context.Context, cl *kgo.Client, name string) error {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &name
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		err := brokerError(t.ErrorCode, nil)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return fmt.Errorf("topic '%s' does not exist; `cairn topics create --topic %s` makes it", name, name)
		}
		if err != nil {
			return fmt.Errorf("topic '%s': %w", name, err)
		}
	}
	return nil
}

// recoverStored reads the data directory of a stopped broker.
func (o RecoverOptions) recoverStored(ctx context.Context, conn Connection, cl *kgo.Client, out Output) (err error) {
	e, err := openStored(o.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	l, err := findLog(e, o.DataDir, o.Topic, o.Partition)
	if err != nil {
		return err
	}
	p := newReproducer(o, cl, o.DataDir)
	if p.before, err = o.recoveredBefore(ctx, conn.askAny); err != nil {
		return err
	}
	var failed error
	err = l.ScanQuarantine(func(q engine.Quarantined) bool {
		failed = p.batch(ctx, private.Quarantine{LeaderEpoch: q.LeaderEpoch, Offset: q.Base}, slices.Clone(q.Batch))
		return failed == nil
	})
	if err = errors.Join(err, failed, p.flush(ctx)); err == nil {
		err = p.note(ctx, conn.askAny)
	}
	return errors.Join(err, p.finish(ctx, out))
}

// recoverLive asks live brokers.
func (o RecoverOptions) recoverLive(ctx context.Context, conn Connection, cl *kgo.Client, out Output) error {
	addresses, err := brokerAddresses(ctx, cl)
	if err != nil {
		return err
	}
	brokers := slices.Sorted(maps.Keys(addresses))
	if o.Broker >= 0 {
		if addresses[o.Broker] == "" {
			return fmt.Errorf("broker %d is not alive, those that are: %s; start it, or read its data directory with --data-dir", o.Broker, joinIDs(brokers, ""))
		}
		brokers = []int32{o.Broker}
	}
	var before []Loss
	for i, id := range brokers {
		ask := func(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
			return conn.ask(ctx, addresses[id], req)
		}
		if i == 0 {
			if before, err = o.recoveredBefore(ctx, ask); err != nil {
				return err
			}
		}
		p := newReproducer(o, cl, fmt.Sprintf("broker %d", id))
		p.before = before
		err := errors.Join(p.fromBroker(ctx, conn, addresses[id]), p.flush(ctx))
		if err == nil {
			err = p.note(ctx, ask)
			before = append(before, p.made()...) // another broker may have the same
		}
		if err == nil && o.Remove && (p.done.Ranges != nil || p.done.Skipped > 0) && p.done.Damaged == 0 {
			err = p.remove(ctx, conn, addresses[id])
		}
		if err := errors.Join(err, p.finish(ctx, out)); err != nil {
			return fmt.Errorf("broker %d: %w", id, err)
		}
	}
	return nil
}

// reproducer produces the batches of one quarantine.
type reproducer struct {
	o        RecoverOptions
	cl       *kgo.Client
	delivery delivery
	before   []Loss // what was recovered before
	again    *Loss  // one of those that was met
	done     recovered
}

func newReproducer(o RecoverOptions, cl *kgo.Client, source string) *reproducer {
	return &reproducer{o: o, cl: cl, done: recovered{Topic: o.Topic, Partition: o.Partition, Source: source, To: o.To}}
}

// quarantineAsk is how much one answer of a broker may hold, in bytes.
const quarantineAsk = 4 << 20

func (p *reproducer) fromBroker(ctx context.Context, conn Connection, address string) error {
	err := scanQuarantine(ctx, conn, address, topicPartition{p.o.Topic, p.o.Partition}, func(q private.QuarantinedBatch) error {
		return p.batch(ctx, q.Quarantine, q.Batch)
	})
	if p.o.Broker < 0 && errors.Is(err, kerr.NotLeaderForPartition) { // not every broker has the partition
		return nil
	}
	return err
}

// batch produces the records of one batch, which it owns. A damaged one is counted and passed over.
func (p *reproducer) batch(ctx context.Context, at private.Quarantine, raw []byte) error {
	p.done.last = at
	h, err := batch.ParseHeader(raw)
	if err == nil {
		err = batch.VerifyCRC(raw)
	}
	if err != nil {
		p.done.Damaged++
		return nil
	}
	if h.IsControl() { // the end of a transaction is no record
		return nil
	}
	if p.isRecovered(LostRange{LeaderEpoch: int32(at.LeaderEpoch), From: h.BaseOffset, To: h.LastOffset() + 1}) {
		p.done.Skipped += int64(h.RecordCount)
		return nil
	}
	p.cover(int32(at.LeaderEpoch), h.BaseOffset, h.LastOffset()+1)
	for rec, err := range batch.Records(raw, 0) {
		if err != nil {
			p.done.Damaged++
			return nil
		}
		offset := h.BaseOffset + int64(rec.OffsetDelta)
		p.send(ctx, p.record(&h, rec, int32(at.LeaderEpoch), offset))
		p.done.Records++
	}
	return ctx.Err()
}

// send hands one record to the client, which may block until its buffer has room. The client's own delivery timeout would count
// from the record's timestamp, which is old.
func (p *reproducer) send(ctx context.Context, rec *kgo.Record) {
	ctx, cancel := context.WithTimeout(ctx, DefaultDeliveryTimeout)
	p.cl.Produce(ctx, rec, func(r *kgo.Record, err error) {
		cancel()
		p.delivery.done(r, err)
	})
}

// cover adds [from, to) of an epoch to the ranges.
func (p *reproducer) cover(epoch int32, from, to int64) {
	if n := len(p.done.Ranges); n > 0 && p.done.Ranges[n-1].LeaderEpoch == epoch && p.done.Ranges[n-1].To == from {
		p.done.Ranges[n-1].To = to
		return
	}
	p.done.Ranges = append(p.done.Ranges, LostRange{LeaderEpoch: epoch, From: from, To: to})
}

func (p *reproducer) record(h *batch.Header, rec batch.Record, epoch int32, offset int64) *kgo.Record {
	r := &kgo.Record{Topic: p.o.To, Key: cloneBytes(rec.Key), Value: cloneBytes(rec.Value), Timestamp: time.UnixMilli(rec.Timestamp(h))}
	for _, rh := range rec.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: string(rh.Key), Value: cloneBytes(rh.Value)})
	}
	number := func(name string, n int64) kgo.RecordHeader {
		return kgo.RecordHeader{Key: name, Value: strconv.AppendInt(nil, n, 10)}
	}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: headerOriginTopic, Value: []byte(p.o.Topic)},
		number(headerOriginPartition, int64(p.o.Partition)), number(headerOriginEpoch, int64(epoch)), number(headerOriginOffset, offset))
	return r
}

// flush waits until all records are answered.
func (p *reproducer) flush(ctx context.Context) error {
	err := p.cl.Flush(ctx)
	if sum := p.delivery.summary(p.o.To); sum.Failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d records were not acknowledged; the first: %s", sum.Failed, sum.Sent, sum.Error))
	}
	return err
}

// remove deletes from the broker's quarantine what was read.
func (p *reproducer) remove(ctx context.Context, conn Connection, address string) error {
	answer, err := conn.ask(ctx, address, &private.RemovalRequest{Body: private.QuarantineRemoval{
		Topic: p.o.Topic, Partition: p.o.Partition, UpTo: p.done.last,
	}})
	if err != nil {
		return err
	}
	body := answer.(*private.RemovalResponse).Body
	p.done.Removed = body.Code == 0
	return brokerError(body.Code, &body.Message)
}

// finish waits for the records and prints what became of the quarantine.
func (p *reproducer) finish(ctx context.Context, out Output) error {
	failed := p.flush(ctx)
	if p.done.Damaged > 0 {
		failed = errors.Join(failed, fmt.Errorf("%w: %d in quarantine; `cairn dump --quarantine` shows them", ErrDamaged, p.done.Damaged))
	}
	if p.done.Ranges == nil && p.again != nil && !p.done.Removed {
		failed = errors.Join(failed, fmt.Errorf("%w to %s at %s; --again repeats it, --remove removes it from quarantine",
			ErrRecovered, p.again.RecoveredTo, timeText(p.again.RecoveredMs)))
	}
	if out.JSON {
		return errors.Join(failed, out.writeJSON(p.done))
	}
	tp := topicPartition{p.o.Topic, p.o.Partition}
	text := fmt.Sprintf("Nothing of %s is in quarantine at %s.\n", tp, p.done.Source)
	if p.done.Skipped > 0 {
		text = fmt.Sprintf("Passed over %d records of %s in quarantine at %s: they were recovered before.\n", p.done.Skipped, tp, p.done.Source)
	}
	if p.done.Ranges != nil {
		if p.done.Skipped == 0 {
			text = ""
		}
		text += fmt.Sprintf("Recovered %d records of %s from quarantine at %s to %s: %s\n", p.done.Records, tp, p.done.Source, p.o.To, lostText(p.done.Ranges))
	}
	if p.done.Removed {
		text += fmt.Sprintf("Removed them from quarantine at %s.\n", p.done.Source)
	}
	_, err := out.Out.Write([]byte(text))
	return errors.Join(failed, err)
}
