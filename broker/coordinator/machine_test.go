package coordinator_test

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"cairn/broker/coordinator"
	"cairn/internal/ids"
)

// store is a machine that keeps values by key, transactional ones until their marker.
type store struct {
	values  map[string]string
	pending map[int64]map[string]string
	// waiting are replies kept for a later operation; wake is when Expire answers them.
	waiting []func(error)
	wake    time.Time

	elected, resigned int
	last              ids.Offset // of the records that came with an offset
}

func newStore(int32) *store {
	return &store{values: map[string]string{}, pending: map[int64]map[string]string{}, last: -1}
}

func (s *store) Replay(m coordinator.Meta, r coordinator.Record) error {
	if len(r.Key) == 0 {
		return errors.New("no key")
	}
	if m.Offset != ids.NoOffset {
		if m.Offset <= s.last {
			panic(fmt.Sprintf("offset %d replayed after %d", m.Offset, s.last))
		}
		s.last = m.Offset
	}
	into := s.values
	if m.ProducerID >= 0 {
		if s.pending[m.ProducerID] == nil {
			s.pending[m.ProducerID] = map[string]string{}
		}
		into = s.pending[m.ProducerID]
	}
	if r.Value == nil {
		delete(into, string(r.Key))
	} else {
		into[string(r.Key)] = string(r.Value)
	}
	return nil
}

func (s *store) ReplayMarker(id int64, _ int16, commit bool) {
	if commit {
		maps.Copy(s.values, s.pending[id])
	}
	delete(s.pending, id)
}

func (s *store) Elected(time.Time, *coordinator.Effects) { s.elected++ }

func (s *store) Resigned() {
	s.resigned++
	for _, r := range s.waiting {
		r(coordinator.ErrNotCoordinator)
	}
	s.waiting, s.wake = nil, time.Time{}
}

func (s *store) Expire(now time.Time, fx *coordinator.Effects) time.Time {
	if s.wake.IsZero() || now.Before(s.wake) {
		return s.wake
	}
	fx.Append(rec("expired", "yes"))
	for _, r := range s.waiting {
		fx.Then(r)
	}
	s.waiting, s.wake = nil, time.Time{}
	return time.Time{}
}

func rec(k, v string) coordinator.Record {
	return coordinator.Record{Key: []byte(k), Value: []byte(v)}
}

type (
	fxs = *coordinator.Effects
	op  = func(*store, time.Time, *coordinator.Effects)
)

func put(k, v string) op {
	return func(_ *store, _ time.Time, fx fxs) { fx.Append(rec(k, v)) }
}
