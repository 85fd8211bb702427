package batch_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn/wire/batch"
	"cairn/wire/internal/capture"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	update   = flag.Bool("update", false, "write testdata/kgo-*.bin anew, from franz-go's producer")
	javaPort = flag.Int("java-port", 0, "capture testdata/java-*.bin on this port, see testdata/Golden.java")
)

// The golden batches hold these records, in this order, whoever made them: see also testdata/Golden.java.
const (
	goldenRecords   = 40
	goldenTimestamp = int64(1_700_000_000_000)
)

func goldenKey(i int) []byte {
	if i%5 == 4 {
		return nil
	}
	return fmt.Appendf(nil, "key-%d", i)
}

func goldenValue(i int) []byte {
	if i%9 == 8 {
		return nil
	}
	return []byte(strings.Repeat(fmt.Sprintf("value %d of the golden batch. ", i), 1+i*3))
}

func goldenKgo(i int) *kgo.Record {
	r := &kgo.Record{Topic: "golden", Key: goldenKey(i), Value: goldenValue(i), Timestamp: time.UnixMilli(goldenTimestamp + int64(i*10))}
	if i%4 == 0 {
		r.Headers = []kgo.RecordHeader{{Key: "n", Value: fmt.Appendf(nil, "%d", i)}, {Key: "null", Value: nil}}
	}
	return r
}

var goldenCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// TestUpdateGolden captures what franz-go's producer sends, with -update.
func TestUpdateGolden(t *testing.T) {
	if !*update {
		t.Skip("without -update")
	}
	for name, codec := range goldenCodecs {
		b, err := capture.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		raw, err := captureKgo(b, codec)
		if err := errors.Join(err, b.Close()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join("testdata", "kgo-"+name+".bin"), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func captureKgo(b *capture.Broker, codec kgo.CompressionCodec) ([]byte, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr().String()), kgo.ProducerBatchCompression(codec), kgo.ManualFlushing(), kgo.ClientID("golden"))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for i := range goldenRecords {
		cl.Produce(ctx, goldenKgo(i), nil)
	}
	if err := cl.Flush(ctx); err != nil {
		return nil, err
	}
	if n := len(b.Produced); n != 1 {
		return nil, fmt.Errorf("%d record sets, want all records in one", n)
	}
	return <-b.Produced, nil
}

// TestUpdateGoldenJava captures one batch of each codec from Kafka's Java producer, with -java-port.
func TestUpdateGoldenJava(t *testing.T) {
	if *javaPort == 0 {
		t.Skip("without -java-port")
	}
	b, err := capture.Listen(fmt.Sprintf("127.0.0.1:%d", *javaPort))
	if err != nil {
		t.Fatal(err)
	}
	for range goldenCodecs {
		raw := <-b.Produced
		h, err := batch.ParseHeader(raw)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.Replace(h.Codec().String(), "uncompressed", "none", 1)
		if err := os.WriteFile(filepath.Join("testdata", "java-"+name+".bin"), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func goldenFiles(t testing.TB) map[string][]byte {
	paths, err := filepath.Glob("testdata/*.bin")
	if err != nil || len(paths) < len(goldenCodecs) {
		t.Fatalf("golden batches: %v, %v", paths, err)
	}
	files := map[string][]byte{}
	for _, p := range paths {
		raw, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimSuffix(filepath.Base(p), ".bin")] = raw
	}
	return files
}

func goldenRules() batch.Rules {
	return batch.Rules{MaxMessageBytes: 1 << 20, BeforeMaxMs: 1 << 40, AfterMaxMs: 1 << 40, NowMs: goldenTimestamp, TargetCodec: batch.CodecProducer}
}

func TestGoldenBatchesPassUnchanged(t *testing.T) {
	for name, raw := range goldenFiles(t) {
		t.Run(name, func(t *testing.T) {
			in := bytes.Clone(raw)
			res, err := batch.Validate(in, goldenRules())
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(res.Batch, raw) {
				t.Error("batch was changed")
			}
			if want := strings.SplitN(name, "-", 2)[1]; res.Header.Codec().String() != strings.Replace(want, "none", "uncompressed", 1) {
				t.Errorf("codec %s in %s", res.Header.Codec(), name)
			}
			checkGolden(t, raw)
		})
	}
}

func TestGoldenBatchesSurviveRecompression(t *testing.T) {
	for name, raw := range goldenFiles(t) {
		for target := batch.CodecNone; target <= batch.CodecZstd; target++ {
			t.Run(name+"/"+target.String(), func(t *testing.T) {
				r := goldenRules()
				r.TargetCodec = target
				res, err := batch.Validate(bytes.Clone(raw), r)
				if err != nil {
					t.Fatal(err)
				}
				if res.Header.Codec() != target {
					t.Errorf("codec %s", res.Header.Codec())
				}
				if err := batch.VerifyCRC(res.Batch); err != nil {
					t.Error(err)
				}
				before := batch.DecodeHeader(raw)
				after := res.Header
				after.Length, after.CRC, after.Attributes = before.Length, before.CRC, before.Attributes
				if before != after {
					t.Errorf("header %+v, was %+v", after, before)
				}
				checkGolden(t, res.Batch)
			})
		}
	}
}

func checkGolden(t *testing.T, raw []byte) {
	t.Helper()
	h := batch.DecodeHeader(raw)
	i := 0
	for r, err := range batch.Records(raw, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if !sameBytes(r.Key, goldenKey(i)) || !sameBytes(r.Value, goldenValue(i)) || int(r.OffsetDelta) != i || r.Timestamp(&h) != goldenTimestamp+int64(i*10) {
			t.Fatalf("record %d: %+v", i, r)
		}
		if want := goldenKgo(i).Headers; len(want) != len(r.Headers) {
			t.Fatalf("record %d: %d headers", i, len(r.Headers))
		} else {
			for j := range want {
				if string(r.Headers[j].Key) != want[j].Key || !sameBytes(r.Headers[j].Value, want[j].Value) {
					t.Fatalf("record %d: headers %q", i, r.Headers)
				}
			}
		}
		i++
	}
	if i != goldenRecords {
		t.Fatalf("%d records", i)
	}
}

func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// The Builder makes byte for byte what franz-go makes.
func TestBuilderAgreesWithKgo(t *testing.T) {
	want := goldenFiles(t)["kgo-none"]
	h := batch.DecodeHeader(want)
	cfg := batch.NewBuilderConfig(batch.CodecNone, h.BaseTimestamp)
	cfg.ProducerID, cfg.ProducerEpoch, cfg.BaseSequence, cfg.LeaderEpoch = h.ProducerID, h.ProducerEpoch, h.BaseSequence, h.LeaderEpoch
	b, err := batch.NewBuilder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range goldenRecords {
		kr := goldenKgo(i)
		rec := batch.Record{TimestampDelta: kr.Timestamp.UnixMilli() - h.BaseTimestamp, Key: kr.Key, Value: kr.Value}
		for _, kh := range kr.Headers {
			rec.Headers = append(rec.Headers, batch.RecordHeader{Key: []byte(kh.Key), Value: kh.Value})
		}
		if err := b.Append(rec); err != nil {
			t.Fatal(err)
		}
	}
	got, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("built\n%x\nwant\n%x", got, want)
	}
}

// A client reads what we compress.
func TestKgoReadsRecompressedBatches(t *testing.T) {
	for target := batch.CodecNone; target <= batch.CodecZstd; target++ {
		t.Run(target.String(), func(t *testing.T) {
			r := goldenRules()
			r.TargetCodec = target
			if target == batch.CodecGzip { // from another codec, so that it is written anew
				r.Levels.Gzip = 9
			}
			source := "kgo-gzip"
			if target == batch.CodecGzip {
				source = "kgo-none"
			}
			res, err := batch.Validate(goldenFiles(t)[source], r)
			if err != nil {
				t.Fatal(err)
			}
			b, err := capture.Listen("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			b.FetchRecords = res.Batch
			consumeGolden(t, b.Addr().String())
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func consumeGolden(t *testing.T, addr string) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"golden": {0: kgo.NewOffset().At(0)}}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	fetches := cl.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		t.Fatal(err)
	}
	recs := fetches.Records()
	if len(recs) != goldenRecords {
		t.Fatalf("%d records", len(recs))
	}
	for i, r := range recs {
		want := goldenKgo(i)
		if !sameBytes(r.Key, want.Key) || !sameBytes(r.Value, want.Value) || !r.Timestamp.Equal(want.Timestamp) || len(r.Headers) != len(want.Headers) {
			t.Fatalf("record %d: %+v", i, r)
		}
	}
}
