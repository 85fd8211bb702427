package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/tools/segment"
	"cairn/wire/batch"
)

// ImportOptions says which segment files to produce to which topic.
type ImportOptions struct {
	Dir       string // of one partition, or of directories NAME-PARTITION
	Topic     string
	Partition int32 // -1: as the directories are called
}

// ErrImport is wrapped by the error of an import that did not come to its end.
var ErrImport = errors.New("not all was imported")

// importSource is one partition's files.
type importSource struct {
	dir       string
	partition int32
}

// partitionDir is how Kafka calls the directory of a partition.
var partitionDir = regexp.MustCompile(`^(.+)-(\d+)$`)

// ImportSegments produces the records of Kafka's segment files to a topic that exists: keys, values, headers and timestamps as they are, in order.
// Offsets are the same where the topic's partition is empty and the files begin at 0 without a gap; else it says which became which.
// Records of transactions that were aborted, or whose end is not in the files, and the markers are left out.
func ImportSegments(ctx context.Context, conn Connection, o ImportOptions, out Output) error {
	sources, err := o.sources()
	if err != nil {
		return err
	}
	cl, err := conn.openAdmin(ctx, out)
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, s := range sources {
		if _, err := partitionsOf(ctx, cl, o.Topic, s.partition); err != nil {
			return fmt.Errorf("%w; `cairn topics create --topic %s --partitions %d` makes a topic for these files", err, o.Topic, lastPartition(sources)+1)
		}
	}
	limit, err := maxMessageBytes(ctx, cl, o.Topic)
	if err != nil {
		return err
	}
	for _, s := range sources {
		if err := o.load(ctx, conn, s, limit, out); err != nil {
			return fmt.Errorf("%s: %w", s.dir, err)
		}
	}
	return nil
}

func lastPartition(sources []importSource) int32 {
	return slices.MaxFunc(sources, func(a, b importSource) int { return cmp.Compare(a.partition, b.partition) }).partition
}

// sources finds the files: in the directory itself, or in those of the topic's name below it, or in those of the only name there is.
func (o ImportOptions) sources() ([]importSource, error) {
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return nil, err
	}
	if _, err := segment.Files(o.Dir); err == nil {
		s := importSource{o.Dir, o.Partition}
		if s.partition < 0 {
			s.partition = 0
			if m := partitionDir.FindStringSubmatch(filepath.Base(filepath.Clean(o.Dir))); m != nil {
				if n, err := strconv.ParseInt(m[2], 10, 32); err == nil {
					s.partition = int32(n)
				}
			}
		}
		return []importSource{s}, nil
	}
	byName := map[string][]importSource{}
	var names []string
	for _, e := range entries {
		m := partitionDir.FindStringSubmatch(e.Name())
		if m == nil || !e.IsDir() {
			continue
		}
		n, err := strconv.ParseInt(m[2], 10, 32)
		if err != nil || o.Partition >= 0 && int32(n) != o.Partition {
			continue
		}
		if byName[m[1]] == nil {
			names = append(names, m[1])
		}
		byName[m[1]] = append(byName[m[1]], importSource{filepath.Join(o.Dir, e.Name()), int32(n)})
	}
	found := byName[o.Topic]
	if found == nil && len(names) == 1 {
		found = byName[names[0]]
	}
	switch {
	case found != nil:
		slices.SortFunc(found, func(a, b importSource) int { return cmp.Compare(a.partition, b.partition) })
		return found, nil
	case len(names) > 1:
		return nil, fmt.Errorf("%s has partitions of %s, none of %s; name the directory of one partition", o.Dir, joinNames(names), o.Topic)
	}
	return nil, fmt.Errorf("%s has neither segment files (00000000000000000000.log) nor directories of partitions (%s-0)", o.Dir, o.Topic)
}

// joinNames lists the first few.
func joinNames(names []string) string {
	const most = 5
	text := ""
	for i, n := range names[:min(len(names), most)] {
		if i > 0 {
			text += ", "
		}
		text += n
	}
	if len(names) > most {
		text += ", ..."
	}
	return text
}

// maxMessageBytes is the topic's own limit, so that the client does not refuse what the topic takes.
func maxMessageBytes(ctx context.Context, cl *kgo.Client, topic string) (int32, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, []string{"max.message.bytes"}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, err
	}
	for _, r := range resp.Resources {
		if err := brokerError(r.ErrorCode, r.ErrorMessage); err != nil {
			return 0, fmt.Errorf("configs of topic %s: %w", topic, err)
		}
		for _, c := range r.Configs {
			if n, err := strconv.ParseInt(deref(c.Value), 10, 32); err == nil && c.Name == "max.message.bytes" {
				return int32(n), nil
			}
		}
	}
	return 0, fmt.Errorf("topic %s tells no max.message.bytes", topic)
}

// importStall ends an import when no record was acknowledged for so long.
const importStall = DefaultDeliveryTimeout

// importBufferBytes bounds the records that wait in the client.
const importBufferBytes = 64 << 20

// load produces one partition's files.
func (o ImportOptions) load(ctx context.Context, conn Connection, s importSource, limit int32, out Output) error {
	files, err := segment.Files(s.dir)
	if err != nil {
		return err
	}
	size, err := segment.Size(files)
	if err != nil {
		return err
	}
	bar := out.Progress(fmt.Sprintf("Importing %s-%d", o.Topic, s.partition), 2*size, InBytes) // they are read twice
	defer bar.Clear()
	txns, err := segment.FindTransactions(files, func(b segment.Batch) { bar.Add(int64(len(b.Raw))) })
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &importer{o: o, s: s, txns: txns, done: imported{Topic: o.Topic, Partition: s.partition, Dir: s.dir, Moved: []movedOffsets{}}, cancel: cancel}
	l.stall = time.AfterFunc(importStall, func() { cancel(fmt.Errorf("no record was acknowledged for %v", importStall)) })
	defer l.stall.Stop()
	tail, err := segment.Scan(files, func(b segment.Batch) error {
		if l.cl == nil {
			if l.cl, err = o.producer(ctx, conn, b.Codec(), limit, out); err != nil {
				return err
			}
		}
		bar.Add(int64(len(b.Raw)))
		return l.batch(ctx, b)
	})
	if l.cl != nil {
		defer l.cl.Close()
		err = errors.Join(err, l.cl.Flush(ctx))
	}
	l.done.Tail = tail
	bar.Clear()
	return l.finish(err, context.Cause(ctx), out)
}

// producer is a client that keeps order and retries without duplicates, and compresses as the files' first batch.
func (o ImportOptions) producer(ctx context.Context, conn Connection, codec batch.Codec, limit int32, out Output) (*kgo.Client, error) {
	codecs := map[batch.Codec]kgo.CompressionCodec{
		batch.CodecNone: kgo.NoCompression(), batch.CodecGzip: kgo.GzipCompression(), batch.CodecSnappy: kgo.SnappyCompression(),
		batch.CodecLZ4: kgo.Lz4Compression(), batch.CodecZstd: kgo.ZstdCompression(),
	}
	// The limit is one of compressed bytes, the client's one of uncompressed ones.
	return conn.open(ctx, out, kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedBytes(importBufferBytes),
		kgo.ProducerBatchMaxBytes(max(limit, 1<<10)), kgo.BrokerMaxWriteBytes(max(limit, 1<<10)+100<<20), kgo.ProducerBatchCompression(codecs[codec]),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.ProducerLinger(0))
}

// importer produces the batches of one partition. done and failed are guarded by mu: the client's goroutines change them.
type importer struct {
	o      ImportOptions
	s      importSource
	cl     *kgo.Client
	txns   *segment.Transactions
	cancel context.CancelCauseFunc
	stall  *time.Timer

	mu     sync.Mutex
	done   imported
	failed error // guarded by mu
}

// batch produces the records of one batch, which is borrowed.
func (l *importer) batch(ctx context.Context, b segment.Batch) error {
	if l.skips(b) {
		return nil
	}
	for rec, err := range batch.Records(b.Raw, 0) {
		if err != nil {
			return fmt.Errorf("%w: %s at position %d: %w", segment.ErrDamaged, b.File, b.Position, err)
		}
		r := &kgo.Record{
			Topic: l.o.Topic, Partition: l.s.partition, Key: cloneBytes(rec.Key), Value: cloneBytes(rec.Value), Timestamp: time.UnixMilli(rec.Timestamp(&b.Header)),
		}
		for _, h := range rec.Headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: string(h.Key), Value: cloneBytes(h.Value)})
		}
		was := b.BaseOffset + int64(rec.OffsetDelta)
		l.cl.Produce(ctx, r, func(r *kgo.Record, err error) { l.answered(was, r, err) })
		if ctx.Err() != nil {
			return nil // load tells why
		}
	}
	return nil
}

// skips counts what is not produced.
func (l *importer) skips(b segment.Batch) bool {
	outcome := l.txns.Outcome(&b.Header)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case b.IsControl():
		l.done.Markers++
	case outcome == segment.Aborted:
		l.done.Aborted += int64(b.RecordCount)
	case outcome == segment.Unfinished:
		l.done.Unfinished += int64(b.RecordCount)
	default:
		return false
	}
	return true
}

// answered takes the outcome of one record. The first failure ends the import: what is behind it would have the wrong order.
func (l *importer) answered(was int64, r *kgo.Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if l.failed == nil {
			l.failed = fmt.Errorf("record at offset %d of the files: %w", was, err)
			l.cancel(l.failed)
		}
		return
	}
	l.stall.Reset(importStall)
	l.done.add(was, r.Offset)
}
