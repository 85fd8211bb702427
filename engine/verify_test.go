package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"cairn/internal/ids"
)

// verifiedLog is a log with all kinds of entries, a truncated tail, a start point and rows of every kind; its
// batches begin at offsets 4, 7, 9 and 11, its entries at index 10.
func verifiedLog(t *testing.T, fs vfs.FS) *group {
	t.Helper()
	g := compactedGroup(t, openMem(t, fs, smallSteps), testBinding(1))
	g.save(g.data(2, 80<<10), g.data(1, 100), g.noop())
	g.fork(g.last-2, 2)
	g.save(g.noop(), g.epochStart(2), g.data(2, 80<<10))
	g.save(g.entry([]byte("void")), g.data(1, 100))
	g.log.SetHighWatermark(7)
	g.commit(g.last - 1)
	return g
}

func verify(t *testing.T, e *Engine) []Problem {
	t.Helper()
	problems, err := e.Verify(1)
	if err != nil {
		t.Fatal(err)
	}
	return problems
}

func TestVerifyFindsNothingInAHealthyLog(t *testing.T) {
	fs := vfs.NewMem()
	g := verifiedLog(t, fs)
	if problems := verify(t, g.e); len(problems) > 0 {
		t.Errorf("problems %v", problems)
	}
	g.reopen(fs, smallSteps)
	if problems := verify(t, g.e); len(problems) > 0 {
		t.Errorf("problems after a restart %v", problems)
	}
	if _, err := g.e.Verify(99); !errors.Is(err, ErrNoPartition) {
		t.Errorf("unknown partition: %v", err)
	}
	closeEngine(t, g.e)
}

// damage changes rows behind the engine's back.
type damage func(t *testing.T, e *Engine, b *pebble.Batch)

func entryKeyOf(i ids.RaftIndex) []byte { return appendEntryKey(nil, 101, 1001, i) }

func changeEntry(index ids.RaftIndex, change func(*EntryRow)) damage {
	return func(t *testing.T, e *Engine, b *pebble.Batch) {
		var row EntryRow
		if err := e.readEntryRow(replicaID{101, 1001}, index, &row); err != nil {
			t.Fatal(err)
		}
		change(&row)
		set(b, entryKeyOf(index), row.appendTo(nil))
	}
}

func changeMeta(change func(*metaRow)) damage {
	return func(t *testing.T, e *Engine, b *pebble.Batch) {
		var m metaRow
		if _, err := e.get(appendPartitionKey(nil, rowMeta, 1), func(v []byte) (err error) {
			m, err = decodeMetaRow(v)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		change(&m)
		set(b, appendPartitionKey(nil, rowMeta, 1), m.appendTo(nil))
	}
}

func changeData(base ids.Offset, change func([]byte) []byte) damage {
	return func(t *testing.T, e *Engine, b *pebble.Batch) {
		found, err := e.get(appendDataKey(nil, 1, base), func(v []byte) error {
			set(b, appendDataKey(nil, 1, base), change(append([]byte(nil), v...)))
			return nil
		})
		if err != nil || !found {
			t.Fatalf("batch at %d: %v, %v", base, found, err)
		}
	}
}

// changeTimeRows changes the last time row.
func changeTimeRows(change func(*timeRow)) damage {
	return func(t *testing.T, e *Engine, b *pebble.Batch) {
		it, err := e.newIter(partitionBounds(rowTime, 1))
		if err != nil {
			t.Fatal(err)
		}
		defer it.Close()
		if !it.Last() {
			t.Fatal("no time row")
		}
		row, base, err := timeRowAt(it)
		if err != nil {
			t.Fatal(err)
		}
		change(&row)
		set(b, appendTimeKey(nil, 1, base), row.appendTo(nil))
	}
}

func putRow(key, value []byte) damage {
	return func(_ *testing.T, _ *Engine, b *pebble.Batch) { set(b, key, value) }
}

func removeRow(key []byte) damage {
	return func(_ *testing.T, _ *Engine, b *pebble.Batch) { deleteRow(b, key) }
}

func TestVerifyFindsDamage(t *testing.T) {
	checkpoint := checkpointRow{Shard: 101, Applied: 1000, HighWatermark: 3}
	highWatermark := checkpointRow{Shard: 101, HighWatermark: 3000}
	late := timeRow{MaxTimestamp: 1, MaxTimestampBase: 1}
	aborted := abortedRow{ProducerID: 7, First: 7, Stable: 10}
	for _, tt := range []struct {
		name, says string
		damage     damage
	}{
		{"flipped bit", "CRC", changeData(7, func(b []byte) []byte { b[len(b)-1] ^= 1; return b })},
		{"wrong base offset", "base offset", changeData(7, func(b []byte) []byte { b[7]++; return b })},
		{"cut batch", "bytes", changeData(7, func(b []byte) []byte { return b[:len(b)-1] })},
		{"other leader epoch", "describes", changeData(7, func(b []byte) []byte { b[15]++; return b })},
		{"batch is gone", "has no batch", removeRow(appendDataKey(nil, 1, 7))},
		{"first batch is gone", "above the log start", removeRow(appendDataKey(nil, 1, 4))},
		{"last batch is gone", "has no batch", removeRow(appendDataKey(nil, 1, 11))},
		{"batch behind the end", "behind the log end", putRow(appendDataKey(nil, 1, 12), []byte("no batch"))},
		{"entry is gone", "follows entry", removeRow(entryKeyOf(13))},
		{"ordinal", "ordinal", changeEntry(11, func(r *EntryRow) { r.Ordinal++ })},
		{"next offset", "log state", changeEntry(12, func(r *EntryRow) { r.Next++ })},
		{"bytes", "log state", changeEntry(14, func(r *EntryRow) { r.LogBytes++ })},
		{"maximum of timestamps", "log state", changeEntry(14, func(r *EntryRow) { r.MaxTimestamp++ })},
		{"term falls", "follows term", changeEntry(17, func(r *EntryRow) { r.Term-- })},
		{"producer", "describes", changeEntry(16, func(r *EntryRow) { r.Batch.ProducerID = 5 })},
		{"epoch of the log", "log state", changeEntry(13, func(r *EntryRow) { r.LeaderEpoch++ })},
		{"epoch is missing", "epochs", changeMeta(func(m *metaRow) { m.Epochs = m.Epochs[:len(m.Epochs)-1] })},
		{"epoch starts elsewhere", "epochs", changeMeta(func(m *metaRow) { m.Epochs[len(m.Epochs)-1].Start++ })},
		{"genesis is missing", "genesis", changeMeta(func(m *metaRow) { m.GenesisIndex = 1000 })},
		{"log start above the end", "log start", changeMeta(func(m *metaRow) { m.LogStart = 1000 })},
		{"meta of another shard", "shard", changeMeta(func(m *metaRow) { m.Shard++ })},
		{"applied behind the end", "applied", putRow(appendPartitionKey(nil, rowCheckpoint, 1), checkpoint.appendTo(nil))},
		{"high watermark above end", "high watermark", putRow(appendPartitionKey(nil, rowCheckpoint, 1), highWatermark.appendTo(nil))},
		{"time row behind the end", "time row", putRow(appendTimeKey(nil, 1, 5000), late.appendTo(nil))},
		{"time row beside a batch", "no batch begins", putRow(appendTimeKey(nil, 1, 8), late.appendTo(nil))},
		{"time row falls", "behind {", changeTimeRows(func(t *timeRow) { t.MaxTimestamp, t.MaxTimestampBase = 1, 1 })},
		{"time row too low", "largest timestamp", changeTimeRows(func(t *timeRow) { t.MaxTimestamp-- })},
		{"time row too high", "largest timestamp", changeTimeRows(func(t *timeRow) { t.MaxTimestamp++ })},
		{"nothing was aborted", "its marker is not here", putRow(appendAbortedKey(nil, 1, 9), aborted.appendTo(nil))},
		{"aborted behind the end", "no batch here or behind", putRow(appendAbortedKey(nil, 1, 900), aborted.appendTo(nil))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := verifiedLog(t, vfs.NewMem())
			defer closeEngine(t, g.e)
			b := g.e.newBatch(0)
			defer b.Close()
			tt.damage(t, g.e, b)
			if err := g.e.commit(b, flushSaved); err != nil {
				t.Fatal(err)
			}
			problems := verify(t, g.e)
			for _, p := range problems {
				if strings.Contains(p.String(), tt.says) {
					return
				}
			}
			t.Errorf("problems %v, want one that says %q", problems, tt.says)
		})
	}
}
