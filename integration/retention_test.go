package integration

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

// diskConstant is what the store may have on disk besides 1.5 times what topics retain: write-ahead log, memtables, what is written
// between two looks, files that still hold a little.
const diskConstant = 1 << 30

// retentionShape is how large a round is. Short: the logs are held to their size. At full length the disk, memory and throughput are as well.
type retentionShape struct {
	partitions int32
	keepBytes  int64 // of each partition
	writeBytes int64 // 0: until length is over
	length     time.Duration
	every      string // log.retention.check.interval.ms
}

// TestRetentionBySizeHoldsTheLogUnderLoad: producers write many times what a topic retains. A consumer that is below the log start is told, and
// goes on as its auto.offset.reset says. CAIRN_RETENTION is the length of the long form in minutes.
func TestRetentionBySizeHoldsTheLogUnderLoad(t *testing.T) {
	t.Parallel()
	shape := retentionShape{partitions: 2, keepBytes: 2 << 20, writeBytes: 32 << 20, length: 2 * time.Minute, every: "300"}
	if s := os.Getenv("CAIRN_RETENTION"); s != "" {
		minutes, err := strconv.Atoi(s)
		must(t, err)
		shape = retentionShape{partitions: 12, keepBytes: 256 << 20, length: time.Duration(minutes) * time.Minute, every: "5000"}
	}
	c := single(t, map[string]string{"log.retention.check.interval.ms": shape.every})
	const topic = "kept"
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), topic, shape.partitions, 1,
		map[string]string{"retention.bytes": strconv.FormatInt(shape.keepBytes, 10)}))
	l := startRetentionLoad(t, c, topic, shape)
	samples := l.run(t, c.Node(1), shape)
	l.slow.Store(true) // at full speed a machine writes more between two looks than the logs may be too large
	until(t, "the logs are at their size", func() bool { return largestLog(t, c, topic) <= shape.keepBytes*3/2 })
	if os.Getenv("CAIRN_RETENTION") != "" {
		judgeSoak(t, samples, int64(shape.partitions)*shape.keepBytes)
	}
	checkBelowLogStart(t, c, topic)
}

// retentionSample is one moment of a load.
type retentionSample struct {
	acked, disk, rss, written int64
}

type retentionLoad struct {
	client *kgo.Client
	acked  atomic.Int64
	slow   atomic.Bool // a hundred records a second from here on
	failed atomic.Pointer[error]
}

func startRetentionLoad(t *testing.T, c *harness.Cluster, topic string, shape retentionShape) *retentionLoad {
	t.Helper()
	cl, err := kgo.NewClient(append(workload.ClientOptions(c.Bootstrap()), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(4000))...)
	must(t, err)
	l := &retentionLoad{client: cl}
	t.Cleanup(cl.Close)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		value := workload.EncodeRecord(1, 10_000)
		for i := int32(0); ctx.Err() == nil; i++ {
			if l.slow.Load() {
				_ = workload.Pause(ctx, 10*time.Millisecond) // an error ends the loop, too
			}
			cl.Produce(context.Background(), &kgo.Record{Partition: i % shape.partitions, Value: value}, func(_ *kgo.Record, err error) {
				if err != nil {
					l.failed.CompareAndSwap(nil, &err)
					return
				}
				l.acked.Add(int64(len(value)))
			})
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return l
}

// run lets the load go on to its end, and takes a sample each second.
func (l *retentionLoad) run(t *testing.T, n *harness.Node, shape retentionShape) (samples []retentionSample) {
	t.Helper()
	end := time.After(shape.length)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for shape.writeBytes == 0 || l.acked.Load() < shape.writeBytes {
		select {
		case <-end:
			if shape.writeBytes > 0 {
				t.Fatalf("only %d bytes were acknowledged in %v", l.acked.Load(), shape.length)
			}
			return samples
		case <-tick.C:
		}
		if err := l.failed.Load(); err != nil {
			t.Fatal(*err)
		}
		u, err := n.Usage()
		must(t, err)
		samples = append(samples, retentionSample{l.acked.Load(), diskUse(t, n.DataDir()), u.RSS, u.WrittenBytes})
	}
	return samples
}

// diskUse is the size of all files below a directory whose files come and go.
func diskUse(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return nil // gone meanwhile
	}))
	return bytes
}

// largestLog is the size of the topic's largest partition.
func largestLog(t *testing.T, c *harness.Cluster, topic string) (size int64) {
	t.Helper()
	cl, err := kgo.NewClient(workload.ClientOptions(c.Bootstrap())...)
	must(t, err)
	defer cl.Close()
	dirs, err := kadm.NewClient(cl).DescribeAllLogDirs(deadline(t, 30*time.Second), nil)
	must(t, err)
	dirs.Each(func(d kadm.DescribedLogDir) {
		for _, p := range d.Topics[topic] {
			size = max(size, p.Size)
		}
	})
	if size == 0 {
		t.Fatal("no partition has a size")
	}
	return size
}

// judgeSoak holds disk, memory and throughput to what they were in minutes 2 to 6.
func judgeSoak(t *testing.T, samples []retentionSample, retained int64) {
	t.Helper()
	var disk, rss int64
	var rates []int64
	for i, s := range samples {
		disk = max(disk, s.disk)
		if i > 0 {
			rates = append(rates, s.acked-samples[i-1].acked)
		}
	}
	first, end := samples[0], samples[len(samples)-1]
	t.Logf("%d MiB acknowledged, at most %d MiB on disk for %d MiB retained", end.acked>>20, disk>>20, retained>>20)
	t.Logf("%.2f bytes written to the disk for each byte of record value", float64(end.written-first.written)/float64(end.acked-first.acked))
	if limit := retained*3/2 + diskConstant; disk > limit {
		t.Errorf("%d bytes on disk, more than %d", disk, limit)
	}
	if len(rates) < 12*60 {
		return // too short to compare its parts
	}
	early, late := median(rates[60:360]), median(rates[len(rates)-300:])
	for _, s := range samples[60:360] {
		rss = max(rss, s.rss)
	}
	t.Logf("median throughput %d MB/s in minutes 2 to 6, %d MB/s in the last five; %d MiB resident, at most %d in minutes 2 to 6", early/1e6, late/1e6, end.rss>>20, rss>>20)
	if late*10 < early*9 {
		t.Errorf("throughput fell from %d to %d bytes/s", early, late)
	}
	if end.rss > rss*5/4 {
		t.Errorf("resident memory rose from %d to %d", rss, end.rss)
	}
}

func median(list []int64) int64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// checkBelowLogStart reads from offset 0, which has been deleted.
func checkBelowLogStart(t *testing.T, c *harness.Cluster, topic string) {
	t.Helper()
	from := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}
	read := func(reset kgo.Offset) (offset int64, err error) {
		cl, err := kgo.NewClient(append(workload.ClientOptions(c.Bootstrap()), kgo.ConsumePartitions(from), kgo.ConsumeResetOffset(reset))...)
		must(t, err)
		defer cl.Close()
		fs := cl.PollFetches(deadline(t, 30*time.Second))
		if err := fs.Err(); err != nil {
			return -1, err
		}
		return fs.Records()[0].Offset, nil
	}
	if _, err := read(kgo.NoResetOffset()); err != kerr.OffsetOutOfRange {
		t.Errorf("without auto.offset.reset: %v", err)
	}
	offset, err := read(kgo.NewOffset().AtStart())
	must(t, err)
	if offset == 0 {
		t.Error("offset 0 is still there")
	}
}
