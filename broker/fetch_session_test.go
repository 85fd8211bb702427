package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"cairn/internal/ids"
	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchReq builds a request for partitions of topic "t", each with fetch offset 10 times its number.
func fetchReq(version int16, id, epoch int32, partitions ...int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.SessionID, req.SessionEpoch = version, id, epoch
	if len(partitions) == 0 {
		return req
	}
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = "t", [16]byte{1}
	for _, n := range partitions {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = n, 10*int64(n), 1000
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	return req
}

func forget(req *kmsg.FetchRequest, partitions ...int32) *kmsg.FetchRequest {
	f := kmsg.NewFetchRequestForgottenTopic()
	f.Topic, f.TopicID, f.Partitions = "t", [16]byte{1}, partitions
	req.ForgottenTopics = append(req.ForgottenTopics, f)
	return req
}

func numbers(plan fetchPlan) (n []int32) {
	for _, w := range plan.wants {
		n = append(n, w.index)
	}
	return n
}

func mustPlan(t *testing.T, c *fetchSessions, req *kmsg.FetchRequest) fetchPlan {
	t.Helper()
	plan, err := c.plan(req, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func wantNumbers(t *testing.T, plan fetchPlan, want ...int32) {
	t.Helper()
	if !slices.Equal(numbers(plan), want) {
		t.Errorf("wants partitions %v, want %v", numbers(plan), want)
	}
}

func TestFetchSessionLife(t *testing.T) {
	for _, version := range []int16{7, 12, 13, 18} {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			c := newFetchSessions(10)
			full := mustPlan(t, c, fetchReq(version, 0, 0, 3, 1, 2))
			wantNumbers(t, full, 3, 1, 2)
			id := full.sessionID()
			if id <= 0 || full.incremental {
				t.Fatalf("session %d, incremental %v", id, full.incremental)
			}
			next := mustPlan(t, c, forget(fetchReq(version, id, 1, 5, 1), 2))
			wantNumbers(t, next, 3, 1, 5)
			if next.sessionID() != id || !next.incremental {
				t.Errorf("session %d, incremental %v", next.sessionID(), next.incremental)
			}
			wantNumbers(t, mustPlan(t, c, fetchReq(version, id, 2)), 3, 1, 5)
			ended := mustPlan(t, c, fetchReq(version, id, -1, 4))
			wantNumbers(t, ended, 4)
			if ended.sessionID() != 0 || c.len() != 0 {
				t.Errorf("session %d after the end, %d in the cache", ended.sessionID(), c.len())
			}
		})
	}
}

func TestFetchSessionErrors(t *testing.T) {
	cases := []struct {
		name string
		req  func(id int32) *kmsg.FetchRequest
		want error
	}{
		{"unknown session", func(id int32) *kmsg.FetchRequest { return fetchReq(12, id^1, 1) }, errSessionNotFound},
		{"session 0 with an epoch", func(int32) *kmsg.FetchRequest { return fetchReq(12, 0, 1) }, errSessionNotFound},
		{"epoch skipped", func(id int32) *kmsg.FetchRequest { return fetchReq(12, id, 2) }, errSessionEpoch},
		{"negative epoch", func(id int32) *kmsg.FetchRequest { return fetchReq(12, id, -2) }, errSessionEpoch},
		{"topic ids in a session of names", func(id int32) *kmsg.FetchRequest { return fetchReq(13, id, 1) }, errSessionTopicIDs},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c := newFetchSessions(10)
			plan := mustPlan(t, c, fetchReq(12, 0, 0, 1))
			id := plan.sessionID()
			if _, err := c.plan(tc.req(id), time.Now()); !errors.Is(err, tc.want) {
				t.Fatalf("%v, want %v", err, tc.want)
			}
			wantNumbers(t, mustPlan(t, c, fetchReq(12, id, 1)), 1) // the session is as it was
			if _, err := c.plan(fetchReq(12, id, 1), time.Now()); !errors.Is(err, errSessionEpoch) {
				t.Fatalf("epoch used twice: %v", err)
			}
		})
	}
}

func TestFetchWithoutSession(t *testing.T) {
	c := newFetchSessions(10)
	for _, req := range []*kmsg.FetchRequest{fetchReq(4, 0, 0, 1, 2), fetchReq(6, 0, -1, 1, 2), fetchReq(11, 0, -1, 1, 2)} {
		plan := mustPlan(t, c, req)
		wantNumbers(t, plan, 1, 2)
		if plan.sessionID() != 0 || c.len() != 0 {
			t.Errorf("version %d made a session", req.Version)
		}
		answer := wire.NewFetchPartition(1, 0)
		if !plan.answers(plan.wants[0].fetchKey, &answer) {
			t.Error("a partition without news was left out")
		}
	}
}

func TestFetchSessionTellsOnlyNews(t *testing.T) {
	c := newFetchSessions(10)
	plan := mustPlan(t, c, fetchReq(12, 0, 0, 1))
	k := plan.wants[0].fetchKey
	at := func(hw, start int64, code int16, records int) *wire.FetchPartition {
		a := wire.NewFetchPartition(1, code)
		a.HighWatermark, a.LogStartOffset = hw, start
		if records > 0 {
			a.Records = [][]byte{make([]byte, records)}
		}
		return &a
	}
	diverging := at(11, 2, 0, 0)
	diverging.DivergingEpoch = 4
	if !plan.answers(k, at(10, 0, 0, 0)) {
		t.Error("a full fetch left a partition out")
	}
	epoch := int32(0)
	for i, step := range []struct {
		answer *wire.FetchPartition
		want   bool
	}{
		{at(10, 0, 0, 0), false},
		{at(10, 0, 0, 5), true},
		{at(10, 0, 0, 0), false},
		{at(11, 0, 0, 0), true},
		{at(11, 2, 0, 0), true},
		{at(11, 2, 0, 0), false},
		{diverging, true},
		{at(-1, -1, 6, 0), true},
		{at(-1, -1, 6, 0), true},
		{at(11, 2, 0, 0), true},
		{at(11, 2, 0, 0), false},
	} {
		epoch++
		plan := mustPlan(t, c, fetchReq(12, plan.sessionID(), epoch))
		if got := plan.answers(k, step.answer); got != step.want {
			t.Errorf("step %d: answered %v, want %v", i, got, step.want)
		}
	}
}

func TestFetchSessionPartitionsWithRecordsGoToTheEnd(t *testing.T) {
	c := newFetchSessions(10)
	plan := mustPlan(t, c, fetchReq(12, 0, 0, 1, 2, 3))
	a := wire.NewFetchPartition(1, 0)
	a.Records = [][]byte{{1}}
	plan.answers(plan.wants[0].fetchKey, &a)
	wantNumbers(t, mustPlan(t, c, fetchReq(12, plan.sessionID(), 1)), 2, 3, 1)
}

func TestFetchSessionThatWantsNothingEnds(t *testing.T) {
	c := newFetchSessions(10)
	plan := mustPlan(t, c, fetchReq(12, 0, 0, 1))
	plan = mustPlan(t, c, forget(fetchReq(12, plan.sessionID(), 1), 1))
	if plan.sessionID() != 0 || len(plan.wants) != 0 || c.len() != 0 {
		t.Errorf("session %d, wants %v, %d in the cache", plan.sessionID(), plan.wants, c.len())
	}
}

func TestFetchSessionEviction(t *testing.T) {
	start := time.Now()
	create := func(c *fetchSessions, after time.Duration, partitions ...int32) int32 {
		plan, err := c.plan(fetchReq(12, 0, 0, partitions...), start.Add(after))
		if err != nil {
			t.Fatal(err)
		}
		return plan.sessionID()
	}
	alive := func(c *fetchSessions, id int32) bool { return c.use(id, start.Add(time.Hour)) != nil }
	t.Run("a full cache of young sessions makes none", func(t *testing.T) {
		c := newFetchSessions(2)
		a, b := create(c, 0, 1), create(c, 0, 2)
		if id := create(c, time.Minute, 1, 2, 3); id != 0 {
			t.Error("a session was made")
		}
		if !alive(c, a) || !alive(c, b) {
			t.Error("a young session was evicted")
		}
	})
	t.Run("the longest unused goes when idle", func(t *testing.T) {
		c := newFetchSessions(2)
		a, b := create(c, 0, 1), create(c, time.Second, 2)
		c.use(a, start.Add(2*time.Minute))
		if id := create(c, 2*time.Minute+2*time.Second, 3); id == 0 || alive(c, b) || !alive(c, a) {
			t.Errorf("new session %d; first alive %v, second alive %v", id, alive(c, a), alive(c, b))
		}
	})
	t.Run("a smaller old one goes for a larger one", func(t *testing.T) {
		c := newFetchSessions(2)
		small, big := create(c, 0, 1), create(c, 0, 1, 2, 3)
		now := 3 * time.Minute
		c.use(small, start.Add(now))
		c.use(big, start.Add(now))
		if id := create(c, now, 7); id != 0 {
			t.Error("one of the same size was evicted")
		}
		if id := create(c, now, 7, 8); id == 0 || alive(c, small) || !alive(c, big) {
			t.Errorf("new session %d; small alive %v, big alive %v", id, alive(c, small), alive(c, big))
		}
	})
	t.Run("no slots", func(t *testing.T) {
		if id := create(newFetchSessions(0), 0, 1); id != 0 {
			t.Error("a session was made")
		}
	})
}

// sessionModel keeps, for every session that should exist, what it should want.
type sessionModel struct {
	cache  *fetchSessions
	alive  map[int32]*modelSession
	known  []int32 // all ids ever given out
	maxLen int
}

type modelSession struct {
	epoch int32
	byID  bool
	want  map[int32]bool
}

// full checks a request for a new session or for none.
func (m *sessionModel) full(t *testing.T, req *kmsg.FetchRequest, add []int32, plan fetchPlan, err error) {
	if err != nil || !slices.Equal(numbers(plan), add) {
		t.Fatalf("full fetch of %v: %v, %v", add, numbers(plan), err)
	}
	delete(m.alive, req.SessionID)
	if m.cache.len() > m.maxLen {
		t.Fatalf("%d sessions", m.cache.len())
	}
	id := plan.sessionID()
	if id == 0 {
		return
	}
	s := &modelSession{epoch: 1, byID: req.Version >= 13, want: map[int32]bool{}}
	for _, n := range add {
		s.want[n] = true
	}
	m.alive[id] = s
	m.known = append(m.known, id)
}

// incremental checks a request that goes on with a session.
func (m *sessionModel) incremental(t *testing.T, req *kmsg.FetchRequest, add, drop []int32, plan fetchPlan, err error) {
	s := m.alive[req.SessionID]
	var want error
	switch {
	case errors.Is(err, errSessionNotFound):
		if s != nil && m.cache.sessions[req.SessionID] != nil {
			t.Fatal("an existing session was not found")
		}
		delete(m.alive, req.SessionID)
		return
	case s == nil:
		want = errSessionNotFound
	case s.byID != (req.Version >= 13):
		want = errSessionTopicIDs
	case req.SessionEpoch != s.epoch:
		want = errSessionEpoch
	}
	if want != nil || err != nil {
		if !errors.Is(err, want) {
			t.Fatalf("session %d: %v, want %v", req.SessionID, err, want)
		}
		return
	}
	s.epoch++
	for _, n := range add {
		s.want[n] = true
	}
	for _, n := range drop {
		delete(s.want, n)
	}
	got := numbers(plan)
	slices.Sort(got)
	if !slices.Equal(got, slices.Sorted(maps.Keys(s.want))) {
		t.Fatalf("wants %v, want %v", got, s.want)
	}
	if len(s.want) == 0 {
		delete(m.alive, req.SessionID)
	}
}

// setBits lists the set bits among the low eight.
func setBits(bits uint16) (list []int32) {
	for n := range int32(8) {
		if bits>>n&1 != 0 {
			list = append(list, n)
		}
	}
	return list
}

// FuzzFetchSessions compares the session layer with the model, over random requests of four bytes each.
func FuzzFetchSessions(f *testing.F) {
	f.Add([]byte{0, 0, 1, 2, 1, 1, 3, 0, 2, 0, 0, 2, 3, 0, 0, 9})
	f.Add([]byte{0, 0, 255, 0, 1, 1, 0, 255, 0, 2, 3, 7})
	f.Fuzz(func(t *testing.T, script []byte) {
		m := &sessionModel{cache: newFetchSessions(2), alive: map[int32]*modelSession{}, maxLen: 2}
		now := time.Now()
		for ; len(script) >= 4; script = script[4:] {
			op, pick, bits := script[0], script[1], binary.BigEndian.Uint16(script[2:])
			now = now.Add(time.Duration(op>>4) * 20 * time.Second)
			var id int32
			if len(m.known) > 0 && pick&1 != 0 {
				id = m.known[int(pick>>1)%len(m.known)]
			}
			epoch := []int32{0, -1, 1, 2}[op>>1&3]
			if s := m.alive[id]; s != nil && op&8 != 0 {
				epoch = s.epoch
			}
			add, drop := setBits(bits), setBits(bits>>8)
			req := forget(fetchReq(int16(12+op&1), id, epoch, add...), drop...)
			plan, err := m.cache.plan(req, now)
			if epoch == 0 || epoch == -1 {
				m.full(t, req, add, plan, err)
			} else {
				m.incremental(t, req, add, drop, plan, err)
			}
		}
	})
}

func TestFetchWantsReadWhatTheVersionHas(t *testing.T) {
	for version, want := range map[int16][2]ids.LeaderEpoch{8: {-1, -1}, 9: {5, -1}, 11: {5, -1}, 12: {5, 4}, 18: {5, 4}} {
		req := fetchReq(version, 0, -1, 1)
		req.Topics[0].Partitions[0].CurrentLeaderEpoch, req.Topics[0].Partitions[0].LastFetchedEpoch = 5, 4
		w := wantsOf(req)[0]
		if w.leaderEpoch != want[0] || w.lastFetchedEpoch != want[1] || w.offset != 10 || w.maxBytes != 1000 {
			t.Errorf("version %d: %+v", version, w)
		}
		if (w.topic == "t") == (version >= 13) || (w.id == ids.UUID{1}) != (version >= 13) {
			t.Errorf("version %d: topic %q, id %v", version, w.topic, w.id)
		}
	}
}
