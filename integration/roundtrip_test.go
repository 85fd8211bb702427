package integration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

const textBytes = 10 << 20

// TestTextFileComesBackLineByLine: a real text file, one record a line, written and read by each client with each codec.
func TestTextFileComesBackLineByLine(t *testing.T) {
	c := single(t, nil)
	file := textFile(t, textBytes)
	text, err := os.ReadFile(file)
	must(t, err)
	lines := bytes.SplitAfter(text, []byte("\n"))
	lines = lines[:len(lines)-1] // behind the last line end is nothing
	for _, codec := range codecs() {
		t.Run("franz-go "+codec, func(t *testing.T) {
			topic := newTopic(t, c, "text-franz", codec)
			var values [][]byte
			for _, l := range lines {
				values = append(values, bytes.TrimSuffix(l, []byte("\n")))
			}
			produceAll(t, c, topic, codec, values)
			compareValues(t, c, topic, values)
			// What one client wrote the other reads.
			got := kcat(t, "-C", "-b", c.Bootstrap()[0], "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q")
			compareText(t, got, text)
		})
		t.Run("kcat "+codec, func(t *testing.T) {
			topic := newTopic(t, c, "text-kcat", codec)
			// kcat sends no record for an empty line.
			full := filepath.Join(t.TempDir(), "lines")
			var want []byte
			for _, l := range lines {
				if len(l) > 1 {
					want = append(want, l...)
				}
			}
			must(t, os.WriteFile(full, want, 0o600))
			kcat(t, "-P", "-b", c.Bootstrap()[0], "-t", topic, "-p", "0", "-z", codec, "-X", "enable.idempotence=true", "-l", full)
			got := kcat(t, "-C", "-b", c.Bootstrap()[0], "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q")
			compareText(t, got, want)
		})
		t.Run("cairn "+codec, func(t *testing.T) {
			topic := newTopic(t, c, "text-cairn", codec)
			cairn(t, "", "produce", "--bootstrap-server", c.Bootstrap()[0], "--topic", topic, "--file", file, "--compression-codec", codec)
			got := cairn(t, "", "consume", "--bootstrap-server", c.Bootstrap()[0], "--topic", topic, "--partition", "0",
				"--from-beginning", "--max-messages", strconv.Itoa(len(lines)), "--timeout-ms", "20000")
			compareText(t, []byte(got), text)
		})
	}
}

// TestBinaryRecordsComeBack: records of up to 900,000 random or repetitive bytes, the empty one included.
func TestBinaryRecordsComeBack(t *testing.T) {
	c := single(t, nil)
	rng := seeded(t)
	values := binaryValues(rng)
	for _, codec := range codecs() {
		t.Run("franz-go "+codec, func(t *testing.T) {
			topic := newTopic(t, c, "binary-franz", codec)
			produceAll(t, c, topic, codec, values)
			compareValues(t, c, topic, values)
		})
		t.Run("kcat "+codec, func(t *testing.T) {
			topic := newTopic(t, c, "binary-kcat", codec)
			args := []string{"-P", "-b", c.Bootstrap()[0], "-t", topic, "-p", "0", "-z", codec, "-X", "message.max.bytes=1000000"}
			var want [][]byte
			for i, v := range values {
				if len(v) == 0 {
					continue // kcat sends no empty file
				}
				name := filepath.Join(t.TempDir(), fmt.Sprintf("%04d", i))
				must(t, os.WriteFile(name, v, 0o600))
				args, want = append(args, name), append(want, v)
			}
			kcat(t, args...)
			out := kcat(t, "-C", "-b", c.Bootstrap()[0], "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%S\n%s")
			compareList(t, splitSized(t, out), want)
			compareValues(t, c, topic, want)
		})
	}
}

// binaryValues are records of many sizes, some of which compress.
func binaryValues(rng *rand.Rand) [][]byte {
	sizes := []int{0, 1, 2, 100, 1023, 1024, 65535, 65536, 500_000, 900_000}
	for range 30 {
		sizes = append(sizes, rng.IntN(200_000))
	}
	var values [][]byte
	for i, n := range sizes {
		v := make([]byte, n)
		for j := range v {
			if i%2 == 0 || j%64 == 0 {
				v[j] = byte(rng.Uint32())
			}
		}
		values = append(values, v)
	}
	return values
}

func newTopic(t *testing.T, c *harness.Cluster, kind, codec string) string {
	t.Helper()
	topic := topicFor(kind, codec)
	must(t, workload.CreateTopic(deadline(t, 20*time.Second), c.Bootstrap(), topic, 1, int16(len(c.Brokers())), nil))
	return topic
}

func franzCodec(name string) kgo.CompressionCodec {
	return map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[name]
}

// produceAll writes the values to partition 0, in order.
func produceAll(t *testing.T, c *harness.Cluster, topic, codec string, values [][]byte) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(franzCodec(codec)),
		kgo.ProducerBatchMaxBytes(1<<20), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(t, err)
	defer cl.Close()
	ctx := deadline(t, time.Minute)
	failed := make(chan error, 1) // the first error
	for _, v := range values {
		cl.Produce(ctx, &kgo.Record{Value: v}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	must(t, cl.Flush(ctx))
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
}

func compareValues(t *testing.T, c *harness.Cluster, topic string, want [][]byte) {
	t.Helper()
	records, err := workload.Read(deadline(t, time.Minute), c.Bootstrap(), topic)
	must(t, err)
	var got [][]byte
	for i, r := range records {
		if r.Offset != int64(i) {
			t.Fatalf("record %d has offset %d", i, r.Offset)
		}
		got = append(got, r.Value)
	}
	compareList(t, got, want)
}

func compareList(t *testing.T, got, want [][]byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records came back, not %d", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("record %d of %d bytes is not the one written, of %d bytes", i, len(got[i]), len(want[i]))
		}
	}
}

func compareText(t *testing.T, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	g, w := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
	for i := range min(len(g), len(w)) {
		if !bytes.Equal(g[i], w[i]) {
			t.Fatalf("line %d is %q, not %q", i+1, g[i], w[i])
		}
	}
	t.Fatalf("%d lines came back, not %d", len(g), len(w))
}

// splitSized reads kcat's "%S\n%s" format: the size in decimal, a line end, and so many bytes.
func splitSized(t *testing.T, b []byte) [][]byte {
	t.Helper()
	var all [][]byte
	for len(b) > 0 {
		size, rest, ok := bytes.Cut(b, []byte("\n"))
		n, err := strconv.Atoi(string(size))
		if !ok || err != nil || n < 0 || n > len(rest) {
			t.Fatalf("kcat printed no size but %.40q", b)
		}
		all, b = append(all, rest[:n]), rest[n:]
	}
	return all
}
