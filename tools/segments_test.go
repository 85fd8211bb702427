package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/tools/segment"
)

// readAll reads the first n records of a topic, as text.
func readAll(t *testing.T, conn Connection, topic string, n int) string {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(conn.Bootstrap, ",")...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	perPartition := map[int32]string{}
	for got := 0; got < n; {
		fetches := cl.PollFetches(testContext(t))
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got++
			perPartition[r.Partition] += fmt.Sprintf("%d@%d %s=%s %v\n", r.Offset, r.Timestamp.UnixMilli(), r.Key, r.Value, r.Headers)
		})
	}
	text := ""
	for p := range int32(len(perPartition)) {
		text += fmt.Sprintf("partition %d\n%s", p, perPartition[p])
	}
	return text
}

func TestSegmentsOutAndIn(t *testing.T) {
	_, conn := fakeCluster(t, kfake.SeedTopics(2, "words", "again"))
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(conn.Bootstrap, ",")...), kgo.DefaultProduceTopic("words"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i := range 30 {
		r := &kgo.Record{Partition: int32(i % 2), Key: fmt.Appendf(nil, "k%d", i), Value: bytes.Repeat([]byte("v"), 50), Timestamp: time.UnixMilli(int64(1000 + i))}
		if i%3 == 0 {
			r.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte{byte(i)}}}
		}
		if err := cl.ProduceSync(testContext(t), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	c, dir := &capture{}, t.TempDir()
	export := ExportOptions{Topic: "words", Partition: -1, Filter: AllBatches(), Dir: dir, Segments: segment.Config{SegmentBytes: 500, IndexIntervalBytes: 100}}
	if err := ExportSegments(testContext(t), conn, export, c.output(false)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(c.out.String(), "Exported words-1 to "+filepath.Join(dir, "words-1")+": 15 batches") {
		t.Errorf("export printed %s", c.out.String())
	}
	if err := ExportSegments(testContext(t), conn, export, c.output(false)); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("second export: %v", err)
	}
	in := ImportOptions{Dir: dir, Topic: "again", Partition: -1}
	if err := ImportSegments(testContext(t), conn, in, c.output(false)); err != nil {
		t.Fatal(err)
	}
	if strings.Count(c.out.String(), ": offsets 0 to 14, as in the files\n") != 2 {
		t.Errorf("import printed %s", c.out.String())
	}
	if got, want := readAll(t, conn, "again", 30), readAll(t, conn, "words", 30); got != want {
		t.Errorf("imported were\n%s\nnot\n%s", got, want)
	}
	in.Dir = filepath.Join(dir, "words-1") // once more, behind what is there
	if err := ImportSegments(testContext(t), conn, in, c.output(true)); err != nil {
		t.Fatal(err)
	}
	var done imported
	if err := json.Unmarshal(c.out.Bytes(), &done); err != nil || done.Kept || done.Partition != 1 || done.First != 15 || len(done.Moved) != 1 || done.Moved[0] != (movedOffsets{0, 14, 15}) {
		t.Errorf("second import: %v, %s", err, c.out.String())
	}
}

func TestImportRefusals(t *testing.T) {
	_, conn := fakeCluster(t, kfake.SeedTopics(1, "words"))
	several, none, damaged := t.TempDir(), t.TempDir(), t.TempDir()
	for _, name := range []string{"a-0", "b-0"} {
		if err := os.Mkdir(filepath.Join(several, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	raw := testBatch(t, 0)
	raw[len(raw)-1] ^= 1
	if err := os.WriteFile(filepath.Join(damaged, "00000000000000000100.log"), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, o := range map[string]ImportOptions{
		"has partitions of a, b, none of words": {Dir: several, Topic: "words", Partition: -1},
		"has neither segment files":             {Dir: none, Topic: "words", Partition: -1},
		"damaged segment: " + damaged:           {Dir: damaged, Topic: "words", Partition: -1},
		"--partitions 4` makes a topic":         {Dir: damaged, Topic: "words", Partition: 3},
		"topic 'nowhere' does not exist":        {Dir: damaged, Topic: "nowhere", Partition: 0},
	} {
		if err := ImportSegments(testContext(t), conn, o, (&capture{}).output(false)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestImportSummaryGolden: what is said of offsets, of what was left out, and of an import that ended early.
func TestImportSummaryGolden(t *testing.T) {
	kept := imported{Topic: "words", Partition: 0, Dir: "dir/words-0", Moved: []movedOffsets{}, Markers: 2, Aborted: 5, Unfinished: 1, Tail: 17}
	for o := range int64(5) {
		kept.add(o, o)
	}
	gaps := imported{Topic: "words", Partition: 1, Dir: "dir/words-1", Moved: []movedOffsets{}}
	for o := range int64(30) {
		gaps.add(2*o, o)
	}
	shifted := imported{Topic: "words", Partition: 2, Dir: "dir/words-2", Moved: []movedOffsets{}}
	for o := range int64(4) {
		shifted.add(100+o, o)
	}
	var all strings.Builder
	for _, asJSON := range []bool{false, true} {
		c := &capture{}
		out := c.output(asJSON)
		for _, d := range []imported{kept, gaps, shifted, {Topic: "words", Partition: 3, Dir: "dir/words-3", Moved: []movedOffsets{}}} {
			if err := (&importer{done: d}).finish(nil, nil, out); err != nil {
				t.Error(err)
			}
		}
		failed := &importer{done: shifted, failed: errors.New("record at offset 104 of the files: MESSAGE_TOO_LARGE")}
		err := failed.finish(nil, failed.failed, out)
		if !errors.Is(err, ErrImport) {
			t.Errorf("error %v", err)
		}
		fmt.Fprintf(&all, "%s%v\n", c.out.String(), err)
	}
	golden(t, "import.golden", all.String())
}
