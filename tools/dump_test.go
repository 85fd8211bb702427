package tools

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"cairn/wire/batch"
)

// testBatch has two records at offset 100, of producer 7 at the highest sequence.
func testBatch(t *testing.T, codec batch.Codec) []byte {
	t.Helper()
	cfg := batch.NewBuilderConfig(codec, 1000)
	cfg.ProducerID, cfg.ProducerEpoch, cfg.BaseSequence = 7, 1, 1<<31-1
	b, err := batch.NewBuilder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []batch.Record{
		{Key: []byte("k"), Value: []byte("v"), Headers: []batch.RecordHeader{{Key: []byte("a")}, {Key: []byte("b"), Value: []byte("1")}}},
		{TimestampDelta: 5, OffsetDelta: 1},
	} {
		if err := b.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	batch.SetBaseOffset(raw, 100)
	return raw
}

func TestDumpPrintsKafkasLines(t *testing.T) {
	c := &capture{}
	d := batchDumper{printData: true, out: c.output(false)}
	for _, codec := range []batch.Codec{batch.CodecNone, batch.CodecZstd} {
		if err := d.batch(100, testBatch(t, codec)); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(c.out.String(), "\n")
	if len(lines) != 7 || d.damaged != 0 {
		t.Fatalf("%d lines, %d damaged:\n%s", len(lines), d.damaged, c.out.String())
	}
	for i, want := range []string{
		"baseOffset: 100 lastOffset: 101 count: 2 baseSequence: 2147483647 lastSequence: 0 producerId: 7 producerEpoch: 1 partitionLeaderEpoch: ",
		"| offset: 100 CreateTime: 1000 keySize: 1 valueSize: 1 sequence: 2147483647 headerKeys: [a,b] key: k payload: v",
		"| offset: 101 CreateTime: 1005 keySize: -1 valueSize: -1 sequence: 0 headerKeys: []",
		"baseOffset: 100 lastOffset: 101 ",
		"| offset: 100 CreateTime: 1000 ",
		"| offset: 101 CreateTime: 1005 ",
	} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i, lines[i], want)
		}
	}
	for i, want := range map[int]string{
		0: " isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1005 size: ",
		3: " compresscodec: zstd crc: ",
	} {
		if !strings.Contains(lines[i], want) || !strings.HasSuffix(lines[i], " isvalid: true") {
			t.Errorf("line %d is %q, want %q in it", i, lines[i], want)
		}
	}
}

func TestDumpShowsDamageAndGoesOn(t *testing.T) {
	c := &capture{}
	d := batchDumper{printData: true, out: c.output(true)}
	good, damaged := testBatch(t, batch.CodecNone), testBatch(t, batch.CodecNone)
	damaged[len(damaged)-1] ^= 1
	for _, raw := range [][]byte{damaged, good[:30], good} {
		if err := d.batch(100, raw); err != nil {
			t.Fatal(err)
		}
	}
	if d.damaged != 2 {
		t.Errorf("%d damaged batches counted, want 2", d.damaged)
	}
	var got []dumpedBatch
	for dec := json.NewDecoder(&c.out); dec.More(); {
		var b dumpedBatch
		if err := dec.Decode(&b); err != nil {
			t.Fatal(err)
		}
		got = append(got, b)
	}
	if len(got) != 3 || got[0].Valid || got[0].Problem == "" || got[1].Valid || !got[2].Valid || len(got[2].Records) != 2 {
		t.Errorf("dumped %+v", got)
	}
	if want := int64(len(damaged) + 30); got[2].Position != want {
		t.Errorf("position %d, want %d", got[2].Position, want)
	}
}

func TestDumpOfWhatIsNoDataDirectory(t *testing.T) {
	c := &capture{}
	err := Dump(t.Context(), Connection{}, DumpOptions{DataDir: t.TempDir(), Topic: "t", Filter: AllBatches()}, c.output(false))
	if err == nil || !strings.Contains(err.Error(), "must be the log.dirs") {
		t.Errorf("error %v", err)
	}
}

func TestEndOfTransactionMarker(t *testing.T) {
	marker, epoch := endMarker([]byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 9})
	if marker != "COMMIT" || epoch == nil || *epoch != 9 {
		t.Errorf("%s %v", marker, epoch)
	}
	if marker, _ := endMarker([]byte{0}, nil); marker != "" {
		t.Errorf("%s from a short key", marker)
	}
}

func TestDirectoryThatCannotBeReadSaysWhy(t *testing.T) {
	for err, want := range map[error]string{
		syscall.EAGAIN: "d is in use: stop the broker", fs.ErrPermission: "who runs the broker may read it", fs.ErrNotExist: "d must be the log.dirs of a cairn broker",
	} {
		if got := notOpened("d", fmt.Errorf("open store: %w", err)); !strings.Contains(got.Error(), want) || !errors.Is(got, err) {
			t.Errorf("%v: %v, want %q", err, got, want)
		}
	}
}
