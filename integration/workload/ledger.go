package workload

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"
	"time"
)

// recordHeader is what a numbered record starts with: its number and the CRC-32 of what follows, big-endian.
const recordHeader = 12

// EncodeRecord makes the value of the record with the number: size bytes that depend on it alone.
func EncodeRecord(number uint64, size int) []byte {
	b := make([]byte, max(size, recordHeader))
	binary.BigEndian.PutUint64(b, number)
	x := number*0x9e3779b97f4a7c15 + 1
	for i := recordHeader; i < len(b); i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	binary.BigEndian.PutUint32(b[8:], crc32.ChecksumIEEE(b[recordHeader:]))
	return b
}

// DecodeRecord returns the number of a value, and whether the value is as EncodeRecord made it.
func DecodeRecord(b []byte) (number uint64, ok bool) {
	if len(b) < recordHeader {
		return 0, false
	}
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]) == crc32.ChecksumIEEE(b[recordHeader:])
}

// Ledger is what was acknowledged.
type Ledger struct {
	mu    sync.Mutex
	acked map[int32]map[uint64]int64 // partition, number, offset; guarded by mu
	last  map[int32]time.Time        // the latest acknowledgement; guarded by mu
	pause map[int32]time.Duration    // the longest time between two since ResetPauses; guarded by mu
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{acked: map[int32]map[uint64]int64{}, last: map[int32]time.Time{}, pause: map[int32]time.Duration{}}
}

// Acked notes an acknowledged record.
func (l *Ledger) Acked(partition int32, number uint64, offset int64) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.acked[partition]
	if m == nil {
		m = map[uint64]int64{}
		l.acked[partition] = m
	}
	m[number] = offset
	if last, ok := l.last[partition]; ok {
		l.pause[partition] = max(l.pause[partition], now.Sub(last))
	}
	l.last[partition] = now
}

// ResetPauses starts the measurement of pauses anew; a pause that is under way counts from now.
func (l *Ledger) ResetPauses() {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.last {
		l.last[p], l.pause[p] = now, 0
	}
}

// LongestPause is the longest time that some partition had no acknowledgement since ResetPauses, one that still lasts included.
func (l *Ledger) LongestPause() (partition int32, pause time.Duration) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for p, last := range l.last {
		if d := max(l.pause[p], now.Sub(last)); d > pause {
			partition, pause = p, d
		}
	}
	return partition, pause
}

// WaitAllMove waits until each partition that ever had an acknowledgement has had another one since the call.
func (l *Ledger) WaitAllMove(ctx context.Context) error {
	begun := time.Now()
	for {
		stuck := l.stuckSince(begun)
		if len(stuck) == 0 {
			return nil
		}
		if err := pauseBriefly(ctx); err != nil {
			return fmt.Errorf("partitions %v have had no acknowledgement for %v: %w", stuck, time.Since(begun), err)
		}
	}
}

// stuckSince lists the partitions without an acknowledgement since then.
func (l *Ledger) stuckSince(then time.Time) []int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var stuck []int32
	for p, last := range l.last {
		if !last.After(then) {
			stuck = append(stuck, p)
		}
	}
	return stuck
}

// Len is the number of acknowledged records.
func (l *Ledger) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, m := range l.acked {
		n += len(m)
	}
	return n
}

// Report compares a ledger with what was read.
type Report struct {
	Acked, Read, Unacked                        int // Unacked were read without an acknowledgement, which is legal
	Lost, Duplicated, Reordered, Moved, Damaged int
	Examples                                    []string // the first few findings
}

// Err is nil when nothing is wrong.
func (r Report) Err() error {
	if r.Lost+r.Duplicated+r.Reordered+r.Moved+r.Damaged == 0 {
		return nil
	}
	return fmt.Errorf("%s\n%s", r, strings.Join(r.Examples, "\n"))
}

func (r Report) String() string {
	return fmt.Sprintf("%d acknowledged, %d read (%d of them without acknowledgement): %d lost, %d duplicated, %d reordered, %d at another offset, %d damaged",
		r.Acked, r.Read, r.Unacked, r.Lost, r.Duplicated, r.Reordered, r.Moved, r.Damaged)
}

func (r *Report) find(count *int, format string, args ...any) {
	*count++
	if len(r.Examples) < 20 {
		r.Examples = append(r.Examples, fmt.Sprintf(format, args...))
	}
}

// Record is one record as it was read.
type Record struct {
	Partition   int32
	Offset      int64
	Value       []byte
	LeaderEpoch int32
	Marker      Marker
}

// Marker tells whether a record is the end of a transaction. Only ReadWithMarkers returns such.
type Marker int8

// The kinds of markers.
const (
	NoMarker Marker = iota
	CommitMarker
	AbortMarker
)

// Check compares. records must be all of the topic, of each partition in the order of offsets.
func (l *Ledger) Check(records []Record) Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	rep := Report{Read: len(records)}
	seen := map[int32]map[uint64]bool{}
	previous := map[int32]uint64{}
	for _, rec := range records {
		number, ok := DecodeRecord(rec.Value)
		if !ok {
			rep.find(&rep.Damaged, "partition %d offset %d: not a record of the load, or damaged", rec.Partition, rec.Offset)
			continue
		}
		if seen[rec.Partition] == nil {
			seen[rec.Partition] = map[uint64]bool{}
		} else if number <= previous[rec.Partition] && !seen[rec.Partition][number] {
			rep.find(&rep.Reordered, "partition %d offset %d: number %d behind %d", rec.Partition, rec.Offset, number, previous[rec.Partition])
		}
		if seen[rec.Partition][number] {
			rep.find(&rep.Duplicated, "partition %d offset %d: number %d for the second time", rec.Partition, rec.Offset, number)
			continue
		}
		seen[rec.Partition][number], previous[rec.Partition] = true, number
		switch offset, acked := l.acked[rec.Partition][number]; {
		case !acked:
			rep.Unacked++
		case offset != rec.Offset:
			rep.find(&rep.Moved, "partition %d number %d: acknowledged at offset %d, read at %d", rec.Partition, number, offset, rec.Offset)
		}
	}
	for p, m := range l.acked {
		rep.Acked += len(m)
		for number, offset := range m {
			if !seen[p][number] {
				rep.find(&rep.Lost, "partition %d number %d: acknowledged at offset %d, not there", p, number, offset)
			}
		}
	}
	return rep
}
