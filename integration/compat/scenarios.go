package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"cairn/integration/harness"
	"cairn/integration/workload"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The partitions of a client's topic, one for each scenario that writes.
const (
	partitionCodecs = iota // and the four that follow
	_
	_
	_
	_
	partitionAcks1
	partitionAcks0
	partitionIdempotent
	partitionTransactions
	partitionOffsetsInTransactions
	partitionHeaders
	partitionNulls
	partitionLarge
	partitionOffset
	partitionTime
	dataPartitions
)

// play is one client on a cluster. Each client has topics and groups of its own, named by its slug.
type play struct {
	ctx    context.Context
	c      *harness.Cluster
	client *kgo.Client
	admin  *kadm.Client
	driver *driver
	name   string // of the client
	slug   string
	drops  bool // see stockClient

	memberArgs []string      // more arguments of a member
	settle     time.Duration // how long its group may take to divide partitions anew

	group *clientGroup
}

// scenarios are what every client is asked to do, in order.
func (p *play) scenarios() []row {
	rows := []row{{name: "create a topic", do: p.createTopic}}
	for i, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		rows = append(rows, row{name: "produce and fetch, " + codec, do: func() error {
			return p.roundTrip(order{Partition: int32(partitionCodecs + i), Codec: codec, Acks: "all"}, someRecords())
		}})
	}
	return append(rows, []row{
		{name: "acks=1", do: func() error { return p.roundTrip(order{Partition: partitionAcks1, Acks: "1"}, someRecords()) }},
		{name: "acks=0", do: func() error { return p.roundTrip(order{Partition: partitionAcks0, Acks: "0"}, someRecords()) }},
		{name: "idempotent producer", do: func() error {
			return p.roundTrip(order{Partition: partitionIdempotent, Acks: "all", Idempotent: true}, someRecords())
		}},
		{name: "transactions: committed, aborted", do: p.transactions},
		{name: "offsets in a transaction", do: p.offsetsInTransaction},
		{name: "headers", do: p.headers},
		{name: "null keys and values", do: p.nulls},
		{name: "records of 999,000 bytes", do: p.large},
		{name: "fetch from an offset", do: p.fromOffset},
		{name: "offset of a timestamp", do: p.offsetOfTime},
		{name: "list and describe topics", do: p.describeTopics},
		{name: "more partitions", do: p.growTopic},
		{name: "set and describe configs", do: p.configureTopic},
		{name: "delete a topic", do: p.deleteTopic},
	}...)
}

// topics creates the topics of the client.
func (p *play) topics() error {
	ctx, cancel := context.WithTimeout(p.ctx, 30*time.Second)
	defer cancel()
	return errors.Join(workload.CreateTopic(ctx, p.c.Bootstrap(), p.slug, dataPartitions, 3, nil),
		workload.CreateTopic(ctx, p.c.Bootstrap(), p.slug+"-group", groupPartitions, 3, nil),
		workload.CreateTopic(ctx, p.c.Bootstrap(), p.slug+"-admin", 2, 3, nil))
}

func someRecords() []exchange {
	var all []exchange
	for i := range 30 {
		value := bytes.Repeat([]byte{byte(i), 0, 0xff, '\n'}, 1+i*20)
		all = append(all, exchange{Key: fmt.Appendf(nil, "key %d", i), Value: value})
	}
	return all
}

// roundTrip writes records to an empty partition, in the order given, and reads them back.
func (p *play) roundTrip(o order, records []exchange) error {
	o.Do, o.Topic, o.Records = "produce", p.slug, records
	got, err := p.driver.do(p.ctx, o)
	if err != nil {
		return err
	}
	for i, offset := range got.Offsets {
		if o.Acks != "0" && offset != int64(i) {
			return fmt.Errorf("record %d was given the offset %d", i, offset)
		}
	}
	return p.reads(o.Partition, 0, false, records)
}

// reads lets the client read, and compares.
func (p *play) reads(partition int32, offset int64, committed bool, want []exchange) error {
	got, err := p.driver.do(p.ctx, order{Do: "fetch", Topic: p.slug, Partition: partition, Offset: offset, Committed: committed, Count: len(want)})
	if err != nil {
		return err
	}
	if len(got.Records) != len(want) {
		return fmt.Errorf("%d records were read, not %d", len(got.Records), len(want))
	}
	for i, r := range got.Records {
		w := want[i]
		if !sameBytes(r.Key, w.Key) || !sameBytes(r.Value, w.Value) || !slices.EqualFunc(r.Headers, w.Headers, sameHeader) {
			return fmt.Errorf("record %d differs: it is %s, not %s", i, r, w)
		}
	}
	return nil
}

// sameBytes compares, and tells null from empty.
func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func sameHeader(a, b headerText) bool { return a.Key == b.Key && bytes.Equal(a.Value, b.Value) }

// String shows the beginning of a record.
func (e exchange) String() string {
	short := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return fmt.Sprintf("%d bytes %.12x", len(b), b[:min(len(b), 6)])
	}
	return fmt.Sprintf("(key %s, value %s, headers %v)", short(e.Key), short(e.Value), e.Headers)
}

func (p *play) createTopic() error {
	if _, err := p.driver.do(p.ctx, order{Do: "create", Topic: p.slug + "-made", Partitions: 3}); err != nil {
		return err
	}
	return p.partitionsAre(p.slug+"-made", 3)
}

// partitionsAre waits until the brokers tell of so many partitions.
func (p *play) partitionsAre(topic string, want int) error {
	return p.eventually(func() error {
		topics, err := p.admin.ListTopics(p.ctx, topic)
		if err != nil {
			return err
		}
		if got := len(topics[topic].Partitions); got != want {
			return fmt.Errorf("%s has %d partitions, not %d", topic, got, want)
		}
		return nil
	})
}

// eventually asks again until the answer is right or time is up.
func (p *play) eventually(ask func() error) error { return p.within(15*time.Second, ask) }

func (p *play) within(limit time.Duration, ask func() error) error {
	for deadline := time.Now().Add(limit); ; {
		err := ask()
		if err == nil || time.Now().After(deadline) || p.ctx.Err() != nil {
			return err
		}
		select {
		case <-p.ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func textRecords(texts ...string) []exchange {
	var all []exchange
	for _, text := range texts {
		all = append(all, exchange{Key: []byte("k"), Value: []byte(text)})
	}
	return all
}

// transactions commits, aborts and commits, and reads with both isolation levels.
func (p *play) transactions() error {
	first, lost, last := textRecords("a", "b"), textRecords("lost"), textRecords("c")
	for _, t := range []order{{Records: first}, {Records: lost, Abort: true}, {Records: last}} {
		t.Do, t.Topic, t.Partition, t.ID = "transact", p.slug, partitionTransactions, p.slug+"-tx"
		if _, err := p.driver.do(p.ctx, t); err != nil {
			return err
		}
	}
	if err := p.reads(partitionTransactions, 0, true, slices.Concat(first, last)); err != nil {
		return fmt.Errorf("read committed: %w", err)
	}
	if err := p.reads(partitionTransactions, 0, false, slices.Concat(first, lost, last)); err != nil {
		return fmt.Errorf("read uncommitted: %w", err)
	}
	return nil
}

// offsetsInTransaction commits an offset of a group with a transaction, and one more that is aborted.
func (p *play) offsetsInTransaction() error {
	group := p.slug + "-tx-group"
	for _, t := range []order{{Offset: 7}, {Offset: 9, Abort: true}} {
		t.Do, t.Topic, t.Partition, t.ID, t.Group = "transact", p.slug, partitionOffsetsInTransactions, p.slug+"-tx-offsets", group
		t.Records = textRecords("x")
		if _, err := p.driver.do(p.ctx, t); err != nil {
			return err
		}
	}
	return p.eventually(func() error {
		offsets, err := p.admin.FetchOffsets(p.ctx, group)
		if err != nil {
			return err
		}
		if o, ok := offsets.Lookup(p.slug, partitionOffsetsInTransactions); !ok || o.At != 7 {
			return fmt.Errorf("the group's offset is %d, not 7", o.At)
		}
		return nil
	})
}

func (p *play) headers() error {
	return p.roundTrip(order{Partition: partitionHeaders, Acks: "all"}, []exchange{
		{Key: []byte("k"), Value: []byte("v"), Headers: []headerText{{"trace", []byte("42")}, {"trace", []byte("43")}, {"ünïcode", []byte("x")}}},
	})
}

func (p *play) nulls() error {
	return p.roundTrip(order{Partition: partitionNulls, Acks: "all"}, []exchange{
		{Value: []byte("no key")}, {Key: []byte("no value")}, {Key: []byte("both"), Value: []byte("both")},
	})
}

// large writes records that nothing compresses, as large as the defaults of clients and brokers let pass.
func (p *play) large() error {
	random := rand.NewChaCha8([32]byte{1})
	var all []exchange
	for range 3 {
		value := make([]byte, 999_000)
		_, _ = random.Read(value) // never fails
		all = append(all, exchange{Key: []byte("k"), Value: value})
	}
	return p.roundTrip(order{Partition: partitionLarge, Acks: "all"}, all)
}

// fromOffset reads the second half of what the client wrote.
func (p *play) fromOffset() error {
	all := someRecords()
	if _, err := p.driver.do(p.ctx, order{Do: "produce", Topic: p.slug, Partition: partitionOffset, Acks: "all", Records: all}); err != nil {
		return err
	}
	return p.reads(partitionOffset, 17, false, all[17:])
}

// offsetOfTime asks for offsets by timestamps of records that lie a minute apart.
func (p *play) offsetOfTime() error {
	ctx, cancel := context.WithTimeout(p.ctx, 30*time.Second)
	defer cancel()
	base := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i := range 5 {
		r := &kgo.Record{Topic: p.slug, Partition: partitionTime, Value: []byte("v"), Timestamp: base.Add(time.Duration(i) * time.Minute)}
		if err := p.client.ProduceSync(ctx, r).FirstErr(); err != nil {
			return err
		}
	}
	for _, ask := range []struct {
		at   time.Duration
		want int64
	}{{-time.Minute, 0}, {2 * time.Minute, 2}, {2*time.Minute + time.Millisecond, 3}, {4 * time.Minute, 4}} {
		got, err := p.driver.do(ctx, order{Do: "at", Topic: p.slug, Partition: partitionTime, Time: base.Add(ask.at).UnixMilli()})
		if err != nil {
			return err
		}
		if got.Offset != ask.want {
			return fmt.Errorf("at %v the offset is %d, not %d", ask.at, got.Offset, ask.want)
		}
	}
	return nil
}
