package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"cairn/integration/workload"

	"github.com/twmb/franz-go/pkg/kgo"
)

const dumpLogSegments = "org.apache.kafka.tools.DumpLogSegments"

// segmentStory moves data between cairn and a Kafka of its own, as files.
type segmentStory struct {
	*story
	server *kafkaServer
	dir    string
	moved  []workload.Record // what cairn has in the topic "moved", markers included
}

// segmentRows are the rows of segment files.
func (r *runner) segmentRows(s *story) []row {
	x := &segmentStory{story: s}
	s.ends = append(s.ends, func() error {
		var err error
		if x.server != nil {
			err = x.server.kill()
		}
		if x.dir != "" {
			err = errors.Join(err, os.RemoveAll(x.dir))
		}
		return err
	})
	return []row{
		{"DumpLogSegments", "what cairn dump --export-segments writes: batches, indexes, aborted transactions", x.exported},
		{"Kafka 4.3.1", "its files, left by a kill, go into a topic: cairn dump --import-segments", func() error { return x.imported(r) }},
		{"Kafka 4.3.1", "starts on the files that cairn wrote, and serves what is in them", x.served},
	}
}

// write produces records of 900 bytes: plain ones of each codec, and transactions of which every third is aborted.
func (x *segmentStory) write(ctx context.Context, at []string, topic string) error {
	number := 0
	record := func() *kgo.Record {
		number++
		return &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "k%d", number), Value: workload.EncodeRecord(uint64(number), 900), Headers: []kgo.RecordHeader{{Key: "n", Value: []byte{byte(number)}}}}
	}
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		cl, err := kgo.NewClient(append(workload.ClientOptions(at), kgo.ProducerBatchCompression(codec))...)
		if err != nil {
			return err
		}
		var list []*kgo.Record
		for range 200 {
			list = append(list, record())
		}
		err = cl.ProduceSync(ctx, list...).FirstErr()
		cl.Close()
		if err != nil {
			return err
		}
	}
	cl, err := kgo.NewClient(append(workload.ClientOptions(at), kgo.TransactionalID("mover"))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	const transactions = 9
	for i := range transactions {
		if err := cl.BeginTransaction(); err != nil {
			return err
		}
		for range 200 {
			cl.Produce(ctx, record(), nil)
		}
		if err := cl.Flush(ctx); err != nil {
			return err
		}
		if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(i%3 != 2)); err != nil {
			return err
		}
	}
	for { // the end of a transaction is answered before its markers are written
		got, err := workload.ReadWithMarkers(ctx, at, topic)
		if err != nil || len(got) == number+transactions {
			return err
		}
		if err := workload.Pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("%d records and markers, want %d: %w", len(got), number+transactions, err)
		}
	}
}

// exported compares Kafka's dump of cairn's files with cairn's own, and has Kafka check the indexes.
func (x *segmentStory) exported() (err error) {
	ctx, cancel := context.WithTimeout(x.ctx, time.Minute)
	defer cancel()
	if x.dir, err = os.MkdirTemp(os.Getenv("CAIRN_TEST_DIR"), "cairn-segments-"); err != nil {
		return err
	}
	if err := workload.CreateTopic(ctx, x.c.Bootstrap(), "moved", 1, 3, nil); err != nil {
		return err
	}
	if err := x.write(ctx, x.c.Bootstrap(), "moved"); err != nil {
		return err
	}
	if x.moved, err = workload.ReadWithMarkers(ctx, x.c.Bootstrap(), "moved"); err != nil {
		return err
	}
	if err := x.cairn(ctx, "dump", "--topic", "moved", "--export-segments", x.dir, "--segment-bytes", "1000000").wants(0, "Exported moved-0 to "); err != nil {
		return err
	}
	logs, err := filepath.Glob(filepath.Join(x.dir, "moved-0", "*.log"))
	if err != nil || len(logs) < 2 {
		return fmt.Errorf("%d segments, want several: %w", len(logs), err)
	}
	files := func(suffix string) string {
		return strings.ReplaceAll(strings.Join(logs, ","), ".log", suffix)
	}
	aborted, err := filepath.Glob(filepath.Join(x.dir, "moved-0", "*.txnindex"))
	if err != nil || len(aborted) == 0 {
		return fmt.Errorf("no index of aborted transactions: %w", err)
	}
	dumped, own := x.dumped("--deep-iteration", "--files", files(".log")), x.cairn(ctx, "dump", "--topic", "moved", "--print-data-log")
	indexes := files(".index") + "," + files(".timeindex")
	return errors.Join(
		sameBatches(dumped, own),
		x.dumped("--verify-index-only", "--files", indexes).sound(),
		x.dumped("--index-sanity-check", "--files", indexes).wants(0, logs[0][:len(logs[0])-4]+".timeindex passed sanity check."),
		x.dumped("--files", strings.Join(aborted, ",")).wants(0, "version: 0 producerId: ", " lastStableOffset: "),
	)
}

func (x *segmentStory) dumped(args ...string) answer {
	a, err := x.run(x.ctx, "", dumpLogSegments, args...)
	if err != nil {
		return answer{code: -1, err: err.Error()}
	}
	return a
}

// sound: Kafka's tool has found nothing wrong. It tells what it finds below titles, and ends with 0 all the same.
func (a answer) sound() error {
	for _, bad := range []string{"ismatch", "Found", "out of order", "Exception", "isvalid: false"} {
		if strings.Contains(a.out+a.err, bad) {
			return fmt.Errorf("%q in %s", bad, a)
		}
	}
	return a.wants(0, "Dumping ")
}

// place is what Kafka counts anew in each file.
var place = regexp.MustCompile(` position: \d+`)

// sameBatches compares the lines of batches, and of records as far as both tools print them.
func sameBatches(kafka, own answer) error {
	lines := func(a answer) []string {
		var list []string
		for line := range strings.Lines(place.ReplaceAllString(a.out, "")) {
			if strings.HasPrefix(line, "baseOffset: ") || strings.HasPrefix(line, "| offset: ") {
				line, _, _ = strings.Cut(strings.TrimSuffix(line, "\n"), " key: ")
				list = append(list, line)
			}
		}
		return list
	}
	want, got := lines(kafka), lines(own)
	if !slices.Equal(want, got) || len(got) < 2800 {
		i := 0
		for i < min(len(want), len(got)) && want[i] == got[i] {
			i++
		}
		return fmt.Errorf("%d lines, Kafka's tool has %d; from line %d on %q, and %q", len(got), len(want), i, first(got[i:]), first(want[i:]))
	}
	return kafka.sound()
}

func first(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}

// imported has Kafka write the same, kills it, and imports its files.
func (x *segmentStory) imported(r *runner) (err error) {
	ctx, cancel := context.WithTimeout(x.ctx, 2*time.Minute)
	defer cancel()
	if x.server, err = newKafkaServer(ctx, x.dir, r.classes); err != nil {
		return err
	}
	if err := x.server.start(x.ctx); err != nil {
		return err
	}
	at := []string{x.server.addr}
	for _, topic := range []string{"moved", "filled"} {
		if err := x.server.topic(ctx, topic); err != nil {
			return err
		}
	}
	if err := x.write(ctx, at, "moved"); err != nil {
		return err
	}
	want, err := workload.ReadCommitted(ctx, at, "moved")
	if err != nil {
		return err
	}
	if err := x.server.kill(); err != nil {
		return err
	}
	if err := workload.CreateTopic(ctx, x.c.Bootstrap(), "from-kafka", 1, 3, nil); err != nil {
		return err
	}
	a := x.cairn(ctx, "dump", "--topic", "from-kafka", "--import-segments", x.server.partition("moved"))
	// The plain records keep their offsets; behind the first transaction its marker is missing, and so on.
	if err := a.wants(0, fmt.Sprintf("Imported %d records from ", len(want)), "of the files became", "left out: 600 records of aborted transactions", "left out: 9 markers"); err != nil {
		return err
	}
	got, err := workload.Read(ctx, x.c.Bootstrap(), "from-kafka")
	if err != nil {
		return err
	}
	return sameRecords(got, want, false)
}

// sameRecords compares the records of two topics, with or without offsets and leader epochs.
func sameRecords(got, want []workload.Record, offsets bool) error {
	if len(got) != len(want) || len(want) == 0 {
		return fmt.Errorf("%d records, want %d", len(got), len(want))
	}
	for i := range want {
		g, w := got[i], want[i]
		if !offsets {
			g.Offset, g.LeaderEpoch, w.Offset, w.LeaderEpoch = 0, 0, 0, 0
		}
		if fmt.Sprintf("%+v", g) != fmt.Sprintf("%+v", w) {
			return fmt.Errorf("record %d is %+v, want %+v", i, g, w)
		}
	}
	return nil
}

// served puts cairn's files into the place of an empty topic of the stopped Kafka.
func (x *segmentStory) served() error {
	ctx, cancel := context.WithTimeout(x.ctx, 2*time.Minute)
	defer cancel()
	if x.server == nil {
		return errors.New("there is no Kafka")
	}
	place := x.server.partition("filled")
	old, err := os.ReadDir(place)
	if err != nil {
		return err
	}
	for _, f := range old {
		if f.Name() != "partition.metadata" {
			err = errors.Join(err, os.Remove(filepath.Join(place, f.Name())))
		}
	}
	if err := errors.Join(err, os.CopyFS(place, os.DirFS(filepath.Join(x.dir, "moved-0")))); err != nil {
		return err
	}
	if err := x.server.start(x.ctx); err != nil {
		return err
	}
	got, err := workload.ReadWithMarkers(ctx, []string{x.server.addr}, "filled")
	if err != nil {
		return err
	}
	if err := sameRecords(got, x.moved, true); err != nil {
		return fmt.Errorf("all records: %w", err)
	}
	want, err := workload.ReadCommitted(ctx, x.c.Bootstrap(), "moved")
	if err != nil {
		return err
	}
	if got, err = workload.ReadCommitted(ctx, []string{x.server.addr}, "filled"); err != nil {
		return err
	}
	return errors.Join(sameRecords(got, want, true), x.server.kill())
}
