package workload

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

func TestLedgerFindsEachKindOfDamage(t *testing.T) {
	record := func(offset int64, number uint64) Record {
		return Record{Offset: offset, Value: EncodeRecord(number, 100)}
	}
	damaged := record(1, 2)
	damaged.Value[50]++
	for _, tc := range []struct {
		name string
		read []Record
		want string // part of the report; empty: nothing is wrong
	}{
		{"all there", []Record{record(0, 1), record(1, 2), record(2, 3)}, ""},
		{"one more, unacknowledged", []Record{record(0, 1), record(1, 2), record(2, 3), record(3, 4)}, ""},
		{"lost", []Record{record(0, 1), record(2, 3)}, " 1 lost"},
		{"duplicated", []Record{record(0, 1), record(1, 2), record(2, 3), record(3, 3)}, " 1 duplicated"},
		{"reordered", []Record{record(0, 1), record(1, 3), record(2, 2)}, " 1 reordered"},
		{"moved", []Record{record(0, 1), record(1, 2), record(5, 3)}, " 1 at another offset"},
		{"damaged", []Record{record(0, 1), damaged, record(2, 3)}, " 1 damaged"},
	} {
		l := NewLedger()
		for i := range uint64(3) {
			l.Acked(0, i+1, int64(i))
		}
		rep := l.Check(tc.read)
		if err := rep.Err(); (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestLedgerMeasuresPauses(t *testing.T) {
	l := NewLedger()
	l.Acked(0, 1, 0)
	l.Acked(1, 1, 0)
	l.last[1] = l.last[1].Add(-time.Hour)
	if p, d := l.LongestPause(); p != 1 || d < time.Hour {
		t.Errorf("longest pause %v in partition %d", d, p)
	}
	l.ResetPauses()
	if _, d := l.LongestPause(); d > time.Minute {
		t.Errorf("a pause of %v after the reset", d)
	}
}

func TestLoadAndReadAgainstAFakeCluster(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := CreateTopic(ctx, cluster.ListenAddrs(), "load", 3, 1, nil); err != nil {
		t.Fatal(err)
	}
	l, err := Start(cluster.ListenAddrs(), Options{Topic: "load", Partitions: 3, RecordBytes: 200, Every: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.WaitAcked(ctx, 300); err != nil {
		t.Fatal(err)
	}
	if err := l.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	records, err := Read(ctx, cluster.ListenAddrs(), "load")
	if err != nil {
		t.Fatal(err)
	}
	if rep := l.Ledger.Check(records); rep.Err() != nil || rep.Acked < 300 || rep.Acked != rep.Read {
		t.Errorf("%s", rep)
	}
}
