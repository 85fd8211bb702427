package coordtest

import (
	"encoding/binary"
	"sync"

	"cairn/broker/coordinator"
	"cairn/internal/ids"
	"cairn/wire/batch"
)

// stored is a batch in a replica's log.
type stored struct {
	base, next ids.Offset
	epoch      ids.LeaderEpoch
	raw        []byte
}

// Replica is a replica of a partition in memory. It implements coordinator.Log. Advanced, if set, hears of a risen high
// watermark; it is called without locks held.
type Replica struct {
	Advanced func()

	mu      sync.Mutex
	batches []stored   // guarded by mu
	hw      ids.Offset // guarded by mu
}

// Clone is another replica with the same log.
func (r *Replica) Clone() *Replica {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &Replica{batches: append([]stored(nil), r.batches...), hw: r.hw}
}

// Read implements coordinator.Log.
func (r *Replica) Read(from, limit ids.Offset, maxBytes int) (batches []byte, next ids.Offset, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next = from
	for _, b := range r.batches {
		if b.next <= from {
			continue
		}
		if b.next > limit || len(batches) > 0 && len(batches)+len(b.raw) > maxBytes {
			break
		}
		batches, next = append(batches, b.raw...), b.next
	}
	return batches, next, nil
}

// Start implements coordinator.Log.
func (r *Replica) Start() ids.Offset { return 0 }

// End implements coordinator.Log.
func (r *Replica) End() ids.Offset {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.endLocked()
}

func (r *Replica) endLocked() ids.Offset {
	if len(r.batches) == 0 {
		return 0
	}
	return r.batches[len(r.batches)-1].next
}

// HighWatermark implements coordinator.Log.
func (r *Replica) HighWatermark() ids.Offset {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hw
}

// EpochBefore implements coordinator.Log.
func (r *Replica) EpochBefore(o ids.Offset) ids.LeaderEpoch {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.batches) - 1; i >= 0; i-- {
		if r.batches[i].base < o {
			return r.batches[i].epoch
		}
	}
	return ids.NoEpoch
}

// Commit raises the high watermark to hw, or to the log end if that is lower.
func (r *Replica) Commit(hw ids.Offset) {
	r.mu.Lock()
	hw = min(hw, r.endLocked())
	risen := hw > r.hw
	r.hw = max(r.hw, hw)
	r.mu.Unlock()
	if risen && r.Advanced != nil {
		r.Advanced()
	}
}

// CommitAll raises the high watermark to the log end.
func (r *Replica) CommitAll() { r.Commit(1 << 62) }

// Truncate cuts the log, and lowers the high watermark if need be.
func (r *Replica) Truncate(end ids.Offset) {
	r.mu.Lock()
	for len(r.batches) > 0 && r.batches[len(r.batches)-1].next > end {
		r.batches = r.batches[:len(r.batches)-1]
	}
	r.hw = min(r.hw, r.endLocked())
	r.mu.Unlock()
	if r.Advanced != nil {
		r.Advanced()
	}
}

// Put appends a batch as some leader of the given epoch would.
func (r *Replica) Put(epoch ids.LeaderEpoch, raw []byte) (base, next ids.Offset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	raw = append([]byte(nil), raw...)
	h := batch.DecodeHeader(raw)
	base = r.endLocked()
	next = base + ids.Offset(h.LastOffsetDelta) + 1
	batch.SetBaseOffset(raw, int64(base))
	batch.SetLeaderEpoch(raw, int32(epoch))
	r.batches = append(r.batches, stored{base, next, epoch, raw})
	return base, next
}

// Reign is a reign of a Replica. It implements coordinator.Reign. Its knobs are set with Set.
type Reign struct {
	r     *Replica
	epoch ids.LeaderEpoch
	start ids.Offset

	mu    sync.Mutex
	knobs Knobs                 // guarded by mu
	late  []coordinator.Outcome // guarded by mu; appends whose outcome is not told yet
}

// Knobs say how a reign behaves. The zero value appends and commits at once.
type Knobs struct {
	CheckErr, AppendErr, SettleErr error
	// Hold keeps the high watermark where it is, Silent keeps outcomes back: see Drop.
	Hold, Silent bool
	MaxBatch     int
}

// Lead begins a reign at the log end.
func (r *Replica) Lead(epoch ids.LeaderEpoch) *Reign {
	return &Reign{r: r, epoch: epoch, start: r.End()}
}

// Set turns the knobs.
func (g *Reign) Set(k Knobs) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.knobs = k
}

func (g *Reign) get() Knobs {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.knobs
}

// Drop tells of all that was kept back that its fate is unknown.
func (g *Reign) Drop() {
	g.mu.Lock()
	late := g.late
	g.late = nil
	g.mu.Unlock()
	for _, done := range late {
		done(ids.NoOffset, ids.NoOffset, false)
	}
}

// Epoch implements coordinator.Reign.
func (g *Reign) Epoch() ids.LeaderEpoch { return g.epoch }

// Start implements coordinator.Reign.
func (g *Reign) Start() ids.Offset { return g.start }

// MaxBatchBytes implements coordinator.Reign.
func (g *Reign) MaxBatchBytes() int {
	if k := g.get(); k.MaxBatch > 0 {
		return k.MaxBatch
	}
	return 1 << 20
}

// Check implements coordinator.Reign.
func (g *Reign) Check() error { return g.get().CheckErr }

// Append implements coordinator.Reign.
func (g *Reign) Append(b []byte, done coordinator.Outcome) error {
	k := g.get()
	if k.AppendErr != nil {
		return k.AppendErr
	}
	if k.Silent {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.late = append(g.late, done)
		return nil
	}
	base, next := g.r.Put(g.epoch, b)
	done(base, next, true)
	if !k.Hold {
		g.r.CommitAll()
	}
	return nil
}

// AppendMarker implements coordinator.Reign.
func (g *Reign) AppendMarker(m coordinator.Marker, done coordinator.Outcome) error {
	return g.Append(MarkerBatch(m), done)
}

// Settled implements coordinator.Reign.
func (g *Reign) Settled(next ids.Offset) (bool, error) {
	if g.r.HighWatermark() < next {
		return false, nil
	}
	return true, g.get().SettleErr
}

// MarkerBatch is the control batch of a marker.
func MarkerBatch(m coordinator.Marker) []byte {
	cfg := batch.NewBuilderConfig(batch.CodecNone, 0)
	cfg.ProducerID, cfg.ProducerEpoch, cfg.Transactional, cfg.Control = m.ProducerID, m.ProducerEpoch, true, true
	b, err := batch.NewBuilder(cfg)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	kind := uint16(0)
	if m.Commit {
		kind = 1
	}
	key := binary.BigEndian.AppendUint16([]byte{0, 0}, kind)
	value := binary.BigEndian.AppendUint32([]byte{0, 0}, uint32(m.CoordinatorEpoch))
	if err := b.AppendKV(0, key, value); err != nil {
		panic("BUG: " + err.Error())
	}
	raw, err := b.Build()
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return raw
}
