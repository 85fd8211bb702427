package producer

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"cairn/internal/bin"
	"cairn/internal/ids"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files instead of comparing with them")

// drawBatch makes batches of few producers and epochs, so that appends meet each other.
func drawBatch(t *rapid.T) Batch {
	count := rapid.Int32Range(1, 50).Draw(t, "count")
	base := ids.Offset(rapid.Int64Range(0, 1<<40).Draw(t, "base"))
	b := Batch{
		ProducerID:   rapid.Int64Range(-1, 6).Draw(t, "producer"),
		Epoch:        int16(rapid.IntRange(0, 2).Draw(t, "epoch")),
		BaseSequence: rapid.OneOf(rapid.Int32Range(0, 100), rapid.Int32Range(1<<31-60, 1<<31-1)).Draw(t, "sequence"),
		Count:        count, BaseOffset: base, LastOffset: base + ids.Offset(count) - 1,
		Timestamp:     rapid.Int64Range(-1, 1000).Draw(t, "timestamp"),
		Transactional: rapid.Bool().Draw(t, "transactional"),
	}
	if b.Transactional && rapid.Bool().Draw(t, "control") {
		b.Control, b.BaseSequence, b.CoordinatorEpoch = true, -1, rapid.Int32Range(0, 9).Draw(t, "coordinator")
	}
	return b
}

// image is everything in a state, in comparable form.
func image(s *State) string {
	var b bytes.Buffer
	for _, id := range slices.Sorted(maps.Keys(s.entries)) {
		fmt.Fprintf(&b, "%d %+v\n", id, s.entries[id])
	}
	return b.String()
}

func TestRevertRestoresEveryEarlierState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		images := []string{image(&s)}
		var undos []Undo
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				undos = append(undos, s.Append(drawBatch(t), 0))
				images = append(images, image(&s))
			},
			"truncate": func(t *rapid.T) {
				keep := rapid.IntRange(0, len(undos)).Draw(t, "keep")
				for len(undos) > keep {
					s.Revert(undos[len(undos)-1])
					undos, images = undos[:len(undos)-1], images[:len(images)-1]
					if got := image(&s); got != images[len(images)-1] {
						t.Fatalf("after the revert:\n%swant:\n%s", got, images[len(images)-1])
					}
				}
			},
			"": func(t *rapid.T) {
				if got := image(&s); got != images[len(images)-1] {
					t.Fatalf("state changed by itself:\n%swant:\n%s", got, images[len(images)-1])
				}
			},
		})
	})
}

func TestSnapshotRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		for range rapid.IntRange(0, 60).Draw(t, "appends") {
			s.Append(drawBatch(t), 0)
		}
		snapshot := s.AppendSnapshot([]byte("before"))[len("before"):]
		var loaded State
		if err := loaded.LoadSnapshot(snapshot, 0); err != nil {
			t.Fatal(err)
		}
		if image(&loaded) != image(&s) {
			t.Fatalf("loaded:\n%swant:\n%s", image(&loaded), image(&s))
		}
		if again := loaded.AppendSnapshot(nil); !bytes.Equal(again, snapshot) {
			t.Fatalf("encoding again gives %x, want %x", again, snapshot)
		}
	})
}

// A state rebuilt from a snapshot and the batches behind it is the state that saw them all: what a restart does.
func TestSnapshotAndReplayEqualTheWholeHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batches := make([]Batch, rapid.IntRange(0, 40).Draw(t, "batches"))
		cut := rapid.IntRange(0, len(batches)).Draw(t, "snapshot after")
		var whole, rebuilt State
		for i := range batches {
			batches[i] = drawBatch(t)
			whole.Append(batches[i], 0)
		}
		for _, b := range batches[:cut] {
			rebuilt.Append(b, 0)
		}
		if err := rebuilt.LoadSnapshot(rebuilt.AppendSnapshot(nil), 0); err != nil {
			t.Fatal(err)
		}
		for _, b := range batches[cut:] {
			rebuilt.Append(b, 0)
		}
		if image(&rebuilt) != image(&whole) {
			t.Fatalf("rebuilt:\n%swant:\n%s", image(&rebuilt), image(&whole))
		}
	})
}

func TestExpire(t *testing.T) {
	var s State
	plain := batch(1, 0, 1)
	for i, at := range []int64{100, 199, 200, 300} {
		plain.ProducerID, plain.Timestamp = int64(i), at
		s.Append(plain, 0)
	}
	open := transactional(plain)
	open.ProducerID, open.Timestamp = 9, 100
	s.Append(open, 0)
	if n := s.Expire(300, 101); n != 2 || s.Len() != 3 {
		t.Fatalf("%d expired and %d left, want 2 and 3", n, s.Len())
	}
	for id, want := range map[int64]bool{0: false, 1: false, 2: true, 3: true, 9: true} {
		if _, ok := s.Get(id); ok != want {
			t.Errorf("producer %d kept: %v, want %v", id, ok, want)
		}
	}
	closing := marker(1, 1, 50)
	closing.ProducerID, closing.Timestamp = 9, 100
	s.Append(closing, 0)
	if n := s.Expire(300, 101); n != 1 {
		t.Errorf("%d expired after the transaction ended, want 1", n)
	}
}

// Old timestamps alone do not have a producer forgotten that has just written: a replica that led next would take its repeated batches for new ones.
func TestExpireKeepsWhoHasJustWritten(t *testing.T) {
	const ttl = 24 * 60 * 60 * 1000
	const now = 100 * ttl
	var s State
	s.Append(batch(1, 0, 1), now)
	if n := s.Expire(now+expiryGraceMs-1, ttl); n != 0 {
		t.Errorf("%d expired within the grace", n)
	}
	var loaded State
	if err := loaded.LoadSnapshot(s.AppendSnapshot(nil), now+expiryGraceMs); err != nil {
		t.Fatal(err)
	}
	if n := s.Expire(now+expiryGraceMs, ttl); n != 1 {
		t.Errorf("%d expired after the grace, want 1", n)
	}
	if n := loaded.Expire(now+expiryGraceMs, ttl); n != 0 {
		t.Errorf("%d expired that were loaded just now", n)
	}
}

func TestRevertBringsBackAnExpiredProducer(t *testing.T) {
	var s State
	s.Append(batch(1, 0, 1), 0)
	before := image(&s)
	u := s.Append(batch(1, 1, 1), 0)
	s.Expire(1<<40, 1)
	s.Revert(u)
	if got := image(&s); got != before {
		t.Errorf("got:\n%swant:\n%s", got, before)
	}
}

func TestBatchesWithoutProducerChangeNothing(t *testing.T) {
	var s State
	b := batch(-1, -1, 3)
	b.ProducerID = -1
	s.Revert(s.Append(b, 0))
	if s.Len() != 0 {
		t.Errorf("%d producers", s.Len())
	}
}

func goldenState() *State {
	var s State
	for i := range int32(7) {
		s.Append(batch(1, i*10, 10), 0)
	}
	other := transactional(batch(300, 1<<31-3, 5))
	other.ProducerID = 1 << 50
	s.Append(other, 0)
	closed := transactional(batch(2, 0, 1))
	closed.ProducerID = 1<<50 + 1
	s.Append(closed, 0)
	end := marker(3, 12, 2000)
	end.ProducerID = closed.ProducerID
	s.Append(end, 0)
	return &s
}

func TestSnapshotFormatIsStable(t *testing.T) {
	path := filepath.Join("testdata", "snapshot.golden")
	s := goldenState()
	got := fmt.Sprintf("%s%x\n", image(s), s.AppendSnapshot(nil))
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the stored form changed; stores in the field could not be read. Got:\n%swant:\n%s", got, want)
	}
}

func TestLoadSnapshotRefusesDamageAndKeepsTheState(t *testing.T) {
	good := goldenState().AppendSnapshot(nil)
	s := goldenState()
	before := image(s)
	bad := map[string][]byte{"empty": nil, "newer version": {2, 0}, "left over": append(slices.Clone(good), 0), "huge count": {1, 0xff, 0xff, 0xff, 0x7f}}
	for n := range good {
		bad[fmt.Sprintf("cut at %d", n)] = good[:n]
	}
	for name, b := range bad {
		if err := s.LoadSnapshot(b, 0); !errors.Is(err, bin.ErrMalformed) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if image(s) != before {
		t.Error("a refused snapshot changed the state")
	}
}

func FuzzLoadSnapshot(f *testing.F) {
	f.Add(goldenState().AppendSnapshot(nil))
	f.Add((&State{}).AppendSnapshot(nil))
	f.Add([]byte{1, 3, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s State
		if err := s.LoadSnapshot(b, 0); err != nil {
			return
		}
		if again := s.AppendSnapshot(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x is read, but written as %x", b, again)
		}
	})
}

// BenchmarkMemory reports what a producer costs, with one batch (many short sessions) and with a full memory.
func BenchmarkMemory(b *testing.B) {
	for _, batches := range []int32{1, CachedBatches} {
		b.Run(fmt.Sprintf("batches=%d", batches), func(b *testing.B) {
			const producers = 100_000
			var bytesEach float64
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				s := fill(producers, batches)
				runtime.GC()
				runtime.ReadMemStats(&after)
				bytesEach = float64(after.HeapAlloc-before.HeapAlloc) / producers
				runtime.KeepAlive(s)
			}
			b.ReportMetric(bytesEach, "B/producer")
		})
	}
}

func fill(producers int64, batches int32) *State {
	var s State
	for id := range producers {
		for i := range batches {
			p := batch(1, i, 1)
			p.ProducerID = id
			s.Append(p, 0)
		}
	}
	return &s
}

func BenchmarkAppend(b *testing.B) {
	s := fill(1000, CachedBatches)
	p := batch(1, 0, 1)
	b.ReportAllocs()
	for b.Loop() {
		p.ProducerID = (p.ProducerID + 1) % 1000
		s.Append(p, 0)
	}
}

func BenchmarkSnapshot(b *testing.B) {
	s := fill(100_000, CachedBatches)
	var snapshot []byte
	b.ReportAllocs()
	for b.Loop() {
		snapshot = s.AppendSnapshot(snapshot[:0])
	}
	b.ReportMetric(float64(len(snapshot))/100_000, "B/producer")
}
