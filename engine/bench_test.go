package engine

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

// onDisk is an engine with its default sizes on a real file system.
func onDisk(b testing.TB, change func(*Config)) *Engine {
	b.Helper()
	return openMem(b, vfs.Default, func(c *Config) {
		*c = Config{Dir: b.TempDir()}
		if change != nil {
			change(c)
		}
	})
}

// proposals are entries of a batch each, to be saved again and again: reuse gives them new indexes and ordinals.
type proposals struct {
	g    *group
	cmd  []byte
	size int
}

func newProposals(g *group, batchBytes int) *proposals {
	const overhead = 80 // header of batch and record
	raw := g.batch(1, batchBytes-overhead, nil)
	return &proposals{g: g, cmd: append([]byte{0}, raw...), size: len(raw)}
}

// next is one entry, its command a copy of its own as Raft's would be.
func (p *proposals) next() pb.Entry {
	cmd := make([]byte, len(p.cmd))
	copy(cmd, p.cmd)
	return p.entry(cmd)
}

func (p *proposals) entry(cmd []byte) pb.Entry {
	p.g.last++
	PutHeader(cmd[1:], p.g.header(KindData))
	return pb.Entry{Index: p.g.last, Term: p.g.hard.Term, Type: pb.EncodedEntry, Cmd: cmd}
}

func BenchmarkSave(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 64 << 10, 1 << 20} {
		for _, mode := range []FlushMode{FlushAlways, FlushOS} {
			b.Run(fmt.Sprintf("%dKiB/flush=%s", size>>10, []string{"always", "os"}[mode]), func(b *testing.B) {
				e := onDisk(b, func(c *Config) { c.Flush = mode })
				defer closeEngine(b, e)
				g := startGroup(b, e, testBinding(1))
				p := newProposals(g, size)
				b.SetBytes(int64(p.size))
				b.ReportAllocs()
				updates := make([]pb.Update, 1)
				entries := make([]pb.Entry, 1)
				for b.Loop() {
					g.obs.saved = g.obs.saved[:0]
					entries[0] = p.next()
					g.hard.Commit = g.last - 1
					updates[0] = g.update(entries...)
					if err := (logDB{e}).SaveRaftState(updates, 1); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkSaveTwelveGroups is the save of a worker whose groups are all ready: one commit.
func BenchmarkSaveTwelveGroups(b *testing.B) {
	e := onDisk(b, nil)
	defer closeEngine(b, e)
	var groups []*proposals
	for i := range 12 {
		groups = append(groups, newProposals(startGroup(b, e, testBinding(i+1)), 64<<10))
	}
	updates := make([]pb.Update, len(groups))
	b.SetBytes(int64(len(groups) * groups[0].size))
	b.ReportAllocs()
	for b.Loop() {
		for i, p := range groups {
			p.g.obs.saved = p.g.obs.saved[:0]
			p.g.hard.Commit = p.g.last
			updates[i] = p.g.update(p.next())
		}
		if err := (logDB{e}).SaveRaftState(updates, 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for _, c := range []struct {
		name      string
		batch     int
		tailBytes int64
	}{{"tail/16KiB", 16 << 10, 0}, {"tail/64KiB", 64 << 10, 0}, {"store/1KiB", 1 << 10, -1}, {"store/64KiB", 64 << 10, -1}} {
		b.Run(c.name, func(b *testing.B) {
			e := onDisk(b, func(cfg *Config) { cfg.TailBytes, cfg.Flush = c.tailBytes, FlushOS })
			defer closeEngine(b, e)
			g := startGroup(b, e, testBinding(1))
			p := newProposals(g, c.batch)
			for range (32 << 20) / c.batch {
				g.obs.saved = nil
				g.save(p.next())
			}
			if c.tailBytes < 0 {
				if err := e.db.Flush(); err != nil {
					b.Fatal(err)
				}
			}
			const fetch = 1 << 20
			b.SetBytes(fetch)
			b.ReportAllocs()
			from, end := g.log.Start(), g.log.End()
			for b.Loop() {
				r, err := g.log.Read(ReadOptions{From: from, Limit: end, MaxBytes: fetch})
				if err != nil {
					b.Fatal(err)
				}
				if from = r.Next; from+ids.Offset(fetch/c.batch) >= end {
					from = g.log.Start()
				}
			}
		})
	}
}

// BenchmarkBind opens a store of 12 partitions with 650,000 entries and binds them all.
func BenchmarkBind(b *testing.B) {
	dir := b.TempDir()
	change := func(c *Config) { *c = Config{Dir: dir, Flush: FlushOS} }
	e := openMem(b, vfs.Default, change)
	const partitions, entries, perSave = 12, 650_000, 250
	for i := range partitions {
		g := startGroup(b, e, testBinding(i+1))
		raw := g.batch(1, 100, nil)
		cmd := append([]byte{0}, raw...)
		p := &proposals{g: g, cmd: cmd}
		for range entries / partitions / perSave {
			g.obs.saved = nil
			var save []pb.Entry
			for range perSave {
				save = append(save, p.next())
			}
			g.hard.Commit = g.last - perSave
			g.save(save...)
		}
	}
	closeEngine(b, e)
	for b.Loop() {
		e := openMem(b, vfs.Default, change)
		for i := range partitions {
			if _, err := e.Bind(testBinding(i+1), nil); err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		closeEngine(b, e)
		b.StartTimer()
	}
}

// TestBytesWrittenPerByte: with values in blob files, a byte is written to the log and once more when it is flushed.
func TestBytesWrittenPerByte(t *testing.T) {
	for _, size := range []int{16 << 10, 256 << 10} {
		e := onDisk(t, func(c *Config) { c.MemTableBytes, c.Flush = 4<<20, FlushOS })
		var groups []*proposals
		for i := range 4 {
			groups = append(groups, newProposals(startGroup(t, e, testBinding(i+1)), size))
		}
		for range (128 << 20) / size / len(groups) {
			for _, p := range groups {
				p.g.hard.Commit = p.g.last
				p.g.save(p.next())
			}
		}
		if err := e.db.Flush(); err != nil {
			t.Fatal(err)
		}
		m := e.Metrics()
		ratio := float64(m.WALBytes+m.FlushedBytes+m.CompactedBytes) / float64(m.SavedBytes)
		t.Logf("batches of %d bytes: log %d MB, flush %d MB, compaction %d MB for %d MB: %.3f bytes per byte", size,
			m.WALBytes>>20, m.FlushedBytes>>20, m.CompactedBytes>>20, m.SavedBytes>>20, ratio)
		if ratio > 2.1 {
			t.Errorf("batches of %d bytes: %.3f bytes are written per byte", size, ratio)
		}
		if m.SavedBytes < 127<<20 || m.Saves == 0 || m.Flushes == 0 || m.DiskBytes < 128<<20 {
			t.Errorf("metrics %+v", m)
		}
		closeEngine(t, e)
	}
}
