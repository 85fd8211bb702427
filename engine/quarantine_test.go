package engine

import (
	"reflect"
	"testing"
	"time"

	"cairn/internal/ids"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// places lists what ScanQuarantineFrom finds.
func places(t *testing.T, l *Log, from QuarantinePos) []QuarantinePos {
	t.Helper()
	var list []QuarantinePos
	if err := l.ScanQuarantineFrom(from, func(q Quarantined) bool {
		list = append(list, QuarantinePos{q.LeaderEpoch, q.Base})
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestQuarantineIsReadInPartsAndRemoved(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, nil)
	g := startGroup(t, e, testBinding(1))
	at := g.last
	for term := uint64(2); term < 4; term++ {
		g.save(g.data(2, int(10*term)), g.data(3, int(10*term)))
		g.fork(at, term)
		g.epoch = 0
		g.save(g.noop(), g.epochStart(ids.LeaderEpoch(term)))
	}
	all := []QuarantinePos{{0, 0}, {0, 2}, {2, 0}, {2, 2}}
	for i, from := range []QuarantinePos{QuarantineStart(), all[0].After(), {1, 7}, all[2].After(), all[3].After()} {
		if got := places(t, g.log, from); len(got) != len(all)-i || len(got) > 0 && !reflect.DeepEqual(got, all[i:]) {
			t.Errorf("from %v: %v", from, got)
		}
	}
	list, err := e.Quarantine()
	if err != nil || len(list) != 4 || list[1].Next != 5 || list[1].Partition != g.log.Info().ID || list[1].Bytes == 0 {
		t.Fatalf("listed %+v, %v", list, err)
	}
	if age := time.Since(time.UnixMilli(list[0].AtMs)); age < -time.Second || age > time.Minute {
		t.Errorf("put there %v ago", age)
	}
	upTo, err := g.log.QuarantineUpTo(QuarantinePos{2, 1})
	if err != nil || !reflect.DeepEqual(upTo, list[:3]) {
		t.Errorf("up to: %+v, %v", upTo, err)
	}
	if err := e.RemoveQuarantined(upTo); err != nil {
		t.Fatal(err)
	}
	g.reopen(fs, nil)
	if got := places(t, g.log, QuarantineStart()); !reflect.DeepEqual(got, all[3:]) {
		t.Errorf("left: %v", got)
	}
	closeEngine(t, g.e)
}

// An epoch without a batch yet does not put a log ahead of another one that holds the same.
func TestLogEndNamesTheEpochOfTheLastBatch(t *testing.T) {
	fs := vfs.NewMem()
	e := openMem(t, fs, nil)
	g := startGroup(t, e, testBinding(1))
	if got := g.log.LogEnd(); got != (LogEnd{0, ids.NoEpoch, -1}) {
		t.Errorf("empty log: %+v", got)
	}
	before := time.Now().UnixMilli()
	g.save(g.data(2, 10))
	end := g.log.LogEnd()
	if end.End != 2 || end.LeaderEpoch != 0 || end.AppendMs < before || end.AppendMs > time.Now().UnixMilli() {
		t.Errorf("after a batch: %+v", end)
	}
	g.save(g.epochStart(5))
	if got := g.log.LogEnd(); got != end {
		t.Errorf("after an epoch start: %+v", got)
	}
	g.save(g.data(1, 10))
	if got := g.log.LogEnd(); got.End != 3 || got.LeaderEpoch != 5 {
		t.Errorf("after a batch of it: %+v", got)
	}
	g.reopen(fs, nil)
	if got := g.log.LogEnd(); got.End != 3 || got.LeaderEpoch != 5 || got.AppendMs != g.log.State().MaxTimestamp {
		t.Errorf("after a restart: %+v", got)
	}
	closeEngine(t, g.e)
}
