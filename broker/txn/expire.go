package txn

import (
	"maps"
	"slices"
	"time"

	"cairn/broker/coordinator"
)

// expiryBytesMax bounds what one look for timeouts or idle ids writes, which is one batch. The rest follows at once.
const expiryBytesMax = 256 << 10

// Expire implements coordinator.Machine: it aborts transactions that are open for longer than their timeout, has those that
// are prepared go on if something went wrong with them, and forgets ids that were idle for long.
func (m *Machine) Expire(now time.Time, fx *coordinator.Effects) (next time.Time) {
	if !m.leading {
		return time.Time{}
	}
	if !now.Before(m.abortAt) {
		m.abortAt = now
		if m.abortTimedOut(now, fx) {
			m.abortAt = now.Add(m.cfg.AbortInterval)
			m.goOn(now, fx)
		}
	}
	if !now.Before(m.expireAt) {
		m.expireAt = now
		if m.forgetIdle(now, fx) {
			m.expireAt = now.Add(m.cfg.ExpireInterval)
		}
	}
	if m.abortAt.Before(m.expireAt) {
		return m.abortAt
	}
	return m.expireAt
}

// abortTimedOut prepares the abort of transactions that are open for too long, with an epoch that fences their producers.
// False: there are more.
func (m *Machine) abortTimedOut(now time.Time, fx *coordinator.Effects) bool {
	var due []string
	for id, over := range m.open {
		if over.IsZero() {
			over = m.ids[id].timeoutOver(now)
			m.open[id] = over
		}
		if over.Before(now) {
			due = append(due, id)
		}
	}
	slices.Sort(due)
	written := 0
	for _, id := range due {
		t := m.ids[id]
		size := recordSize(id, &t)
		if written > 0 && written+size > expiryBytesMax {
			return false
		}
		written += size
		fenced := t.fenced(m.cfg.Level(), nowMs(now, &t))
		m.end(id, &fenced, fx)
	}
	return true
}

// timeoutOver is when the timeout of an open transaction is over. The wall clock, which alone tells when it began, is asked once: it may be set
// while the transaction is open, and then it says nothing.
func (t Transaction) timeoutOver(now time.Time) time.Time {
	left := t.StartMs + int64(t.TimeoutMs) - now.UnixMilli()
	return now.Add(time.Duration(min(left, int64(t.TimeoutMs))) * time.Millisecond)
}

// forgetIdle removes transactional ids that were idle for too long. False: there are more.
func (m *Machine) forgetIdle(now time.Time, fx *coordinator.Effects) bool {
	if m.expireFrom == nil {
		m.expireFrom = slices.Sorted(maps.Keys(m.ids))
	}
	oldest := now.Add(-m.cfg.Expiration).UnixMilli()
	written := 0
	for len(m.expireFrom) > 0 {
		id := m.expireFrom[0]
		t, known := m.ids[id]
		if known && (t.State == Empty || t.State.complete()) && t.UpdateMs <= oldest {
			size := recordSize(id, &t)
			if written > 0 && written+size > expiryBytesMax {
				return false
			}
			written += size
			fx.Append(coordinator.Record{Key: encodeKey(id)})
		}
		m.expireFrom = m.expireFrom[1:]
	}
	m.expireFrom = nil
	return true
}

// recordSize is about what a record of t needs in a batch.
func recordSize(id string, t *Transaction) int {
	n := 128 + len(id)
	for _, p := range t.Partitions {
		n += 8 + len(p.Topic)
	}
	return n
}
