package integration

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

// smallDisk mounts a file system of so many MiB, in memory, for the test. That needs rights which not every machine gives: then
// the test is skipped, which on CI is a failure.
func smallDisk(t *testing.T, mib int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		const text = "a small file system cannot be mounted, so nothing is known about a full disk (run as root): %v"
		if os.Getenv("CI") != "" {
			t.Fatalf(text, err)
		}
		t.Skipf(text, err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
	return dir
}

// freeMiB is the room on the file system of a directory.
func freeMiB(t *testing.T, dir string) int64 {
	t.Helper()
	var s syscall.Statfs_t
	must(t, syscall.Statfs(dir, &s))
	return int64(s.Bavail) * s.Bsize >> 20
}

// diskWriter produces records of 64 KiB one by one, each of which says its number. It tries nothing again.
type diskWriter struct {
	client *kgo.Client
	acked  map[string]bool
	next   int
}

func (w *diskWriter) write(t *testing.T) error {
	t.Helper()
	value := fmt.Sprintf("%08d", w.next) + strings.Repeat("x", 64<<10)
	err := w.client.ProduceSync(deadline(t, 20*time.Second), &kgo.Record{Topic: "full", Partition: int32(w.next % 4), Value: []byte(value)}).FirstErr()
	if err == nil {
		w.acked[value[:8]] = true
	}
	w.next++
	return err
}

// read returns the numbers of all records that are readable.
func (w *diskWriter) read(t *testing.T, c *harness.Cluster) map[string]bool {
	t.Helper()
	records, err := workload.Read(deadline(t, time.Minute), c.Bootstrap(), "full")
	must(t, err)
	got := map[string]bool{}
	for _, r := range records {
		got[string(r.Value[:8])] = true
	}
	return got
}

// TestFullDisk: a node fills its disk. It refuses records in time, goes on with everything else, and takes records again once
// some were deleted. No acknowledged record is lost, and the node is not ended by it.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	cairnBinary(t)
	const minFree = 48
	dir := smallDisk(t, 192)
	c := single(t, map[string]string{"log.dirs": dir, "log.min.free.bytes": fmt.Sprint(minFree << 20), "log.ballast.bytes": fmt.Sprint(8 << 20)})
	node, at := c.Nodes[0], "--bootstrap-server="+c.Bootstrap()[0]
	must(t, workload.CreateTopic(deadline(t, 20*time.Second), c.Bootstrap(), "full", 4, 1, nil))
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.RecordRetries(0), kgo.DisableIdempotentWrite(), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(t, err)
	t.Cleanup(cl.Close)
	w := &diskWriter{client: cl, acked: map[string]bool{}}
	fill := func() {
		for err = nil; err == nil; err = w.write(t) {
			if w.next > 20_000 {
				t.Fatal("the disk does not get full")
			}
		}
		if !errors.Is(err, kerr.KafkaStorageError) {
			t.Fatalf("refused with %v", err)
		}
		if free := freeMiB(t, dir); free < minFree/4 {
			t.Errorf("refused when %d MiB were left", free)
		}
	}
	fill()
	t.Logf("%d records were taken, %d MiB are left", len(w.acked), freeMiB(t, dir))
	if got := w.read(t, c); len(got) < len(w.acked) {
		t.Errorf("%d of %d records can be read", len(got), len(w.acked))
	}
	if status := cairn(t, "", "status", at); !strings.Contains(status, "Disk of broker 1 is nearly full") {
		t.Errorf("status says\n%s", status)
	}
	cairn(t, "", "topics", "create", at, "--topic", "made-on-a-full-disk")
	cairn(t, "", "topics", "delete", at, "--topic", "made-on-a-full-disk")
	kept := deleteAllBut(t, cl, 100)
	until(t, "records are taken again", func() bool { return w.write(t) == nil })
	fill() // and once more
	got := w.read(t, c)
	for number := range w.acked {
		if !got[number] && number >= kept {
			t.Fatalf("record %s was acknowledged, is not deleted, and cannot be read", number)
		}
	}
	restart(t, node, func() {})
	if again := w.read(t, c); len(again) != len(got) {
		t.Errorf("%d records after a restart, %d before", len(again), len(got))
	}
	if logged(t, node, "panic") {
		t.Error("the node has panicked")
	}
}

// deleteAllBut deletes all records but the newest of each partition, and returns the number up to which records may be gone.
func deleteAllBut(t *testing.T, cl *kgo.Client, records int64) string {
	t.Helper()
	adm := kadm.NewClient(cl)
	ends, err := adm.ListEndOffsets(deadline(t, 20*time.Second), "full")
	must(t, err)
	to := kadm.Offsets{}
	most := int64(0)
	ends.Each(func(o kadm.ListedOffset) {
		to.AddOffset("full", o.Partition, o.Offset-records, -1)
		most = max(most, o.Offset-records)
	})
	resp, err := adm.DeleteRecords(deadline(t, 20*time.Second), to)
	must(t, err)
	must(t, resp.Error())
	return fmt.Sprintf("%08d", 4*most+4) // the partitions got the records in turn, as many as were refused aside
}
