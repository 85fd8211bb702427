package broker

import (
	"cmp"
	"container/list"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"cairn/internal/ids"
	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// fetchTopicIDs is the first fetch version that names topics by id alone.
	fetchTopicIDs = 13
	// fetchSessionEviction is how long a session is safe from making room for another one: since its last use, and
	// since its creation for one with more partitions (Kafka's min.incremental.fetch.session.eviction.ms).
	fetchSessionEviction = 2 * time.Minute
	// maxSessionPartitions bounds what one session remembers; larger fetches go without a session.
	maxSessionPartitions = 20_000

	sessionEpochInitial = 0  // asks for a new session
	sessionEpochFinal   = -1 // asks for none, and ends one
)

var (
	errSessionNotFound = errors.New("no such fetch session")
	errSessionEpoch    = errors.New("fetch session epoch is not the next one")
	errSessionTopicIDs = errors.New("fetch session changed between topic names and topic ids")
)

// fetchKey names a partition within a session: by topic id or by name, as the session's requests do.
type fetchKey struct {
	topic string
	id    ids.UUID
	index int32
}

// fetchWant is what a client wants of one partition.
type fetchWant struct {
	fetchKey
	offset           ids.Offset
	maxBytes         int32
	leaderEpoch      ids.LeaderEpoch // the client's; NoEpoch: not checked
	lastFetchedEpoch ids.LeaderEpoch // of the record before offset; NoEpoch: not checked
}

// sessionPartition is what a session remembers of one partition: the client's wants and what it was last told.
type sessionPartition struct {
	want                    fetchWant
	highWatermark, logStart int64 // -1: not told yet, or an error was told
	place                   *list.Element
}

// fetchSession lets a client name only the partitions that change from one fetch to the next.
type fetchSession struct {
	id      int32
	byID    bool // its requests name topics by id
	created time.Time

	// Guarded by fetchSessions.mu.
	lastUsed time.Time
	recency  *list.Element
	size     int

	mu         sync.Mutex
	epoch      int32 // guarded by mu; the next request's
	partitions map[fetchKey]*sessionPartition
	order      list.List // guarded by mu; of *sessionPartition: those that had records last go to the end
}

// fetchSessions is the bounded cache of incremental fetch sessions (KIP-227).
type fetchSessions struct {
	slots int

	mu       sync.Mutex
	sessions map[int32]*fetchSession // guarded by mu
	recent   list.List               // guarded by mu; of *fetchSession, the longest unused first
}

// fetchPlan is one fetch as the session layer understands it: what to read, and how to answer.
type fetchPlan struct {
	wants       []fetchWant
	session     *fetchSession // nil: none
	incremental bool          // leave out what the client knows
}

// newFetchSessions returns a cache of at most slots sessions (max.incremental.fetch.session.cache.slots).
func newFetchSessions(slots int) *fetchSessions {
	return &fetchSessions{slots: slots, sessions: map[int32]*fetchSession{}}
}

// len is the number of sessions.
func (c *fetchSessions) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sessions)
}

// plan finds out what a request asks for and advances its session. Errors: errSessionNotFound, errSessionEpoch,
// errSessionTopicIDs.
func (c *fetchSessions) plan(req *kmsg.FetchRequest, now time.Time) (fetchPlan, error) {
	if req.Version < 7 {
		return fetchPlan{wants: wantsOf(req)}, nil
	}
	if req.SessionEpoch != sessionEpochInitial && req.SessionEpoch != sessionEpochFinal {
		return c.planIncremental(req, now)
	}
	if req.SessionID != 0 {
		c.remove(req.SessionID)
	}
	plan := fetchPlan{wants: wantsOf(req)}
	if req.SessionEpoch == sessionEpochInitial {
		plan.session = c.create(plan.wants, req.Version >= fetchTopicIDs, now)
	}
	return plan, nil
}

func (c *fetchSessions) planIncremental(req *kmsg.FetchRequest, now time.Time) (fetchPlan, error) {
	s := c.use(req.SessionID, now)
	if s == nil {
		return fetchPlan{}, errSessionNotFound
	}
	wants, err := s.advance(req)
	switch {
	case err != nil:
		if errors.Is(err, errSessionNotFound) {
			c.remove(s.id)
		}
		return fetchPlan{}, err
	case len(wants) == 0:
		c.remove(s.id)
		return fetchPlan{}, nil
	}
	c.resized(s, len(wants))
	return fetchPlan{wants: wants, session: s, incremental: true}, nil
}

// advance applies an incremental request and returns all that the session now wants. errSessionNotFound: it wants too
// much, and has to go.
func (s *fetchSession) advance(req *kmsg.FetchRequest) ([]fetchWant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.byID != (req.Version >= fetchTopicIDs):
		return nil, errSessionTopicIDs
	case s.epoch != req.SessionEpoch:
		return nil, errSessionEpoch
	}
	s.epoch = nextSessionEpoch(s.epoch)
	for _, w := range wantsOf(req) {
		s.wantLocked(w)
	}
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, index := range t.Partitions {
			s.forgetLocked(keyOf(req.Version, t.Topic, t.TopicID, index))
		}
	}
	if len(s.partitions) > maxSessionPartitions {
		return nil, errSessionNotFound
	}
	wants := make([]fetchWant, 0, len(s.partitions))
	for e := s.order.Front(); e != nil; e = e.Next() {
		wants = append(wants, e.Value.(*sessionPartition).want)
	}
	return wants, nil
}

func nextSessionEpoch(epoch int32) int32 {
	if epoch == math.MaxInt32 {
		return 1
	}
	return epoch + 1
}

func (s *fetchSession) wantLocked(w fetchWant) {
	if p := s.partitions[w.fetchKey]; p != nil {
		p.want = w
		return
	}
	p := &sessionPartition{want: w, highWatermark: -1, logStart: -1}
	p.place = s.order.PushBack(p)
	s.partitions[w.fetchKey] = p
}

func (s *fetchSession) forgetLocked(k fetchKey) {
	if p := s.partitions[k]; p != nil {
		s.order.Remove(p.place)
		delete(s.partitions, k)
	}
}

// told notes what a partition's answer says, and reports whether the client does not know it yet. Partitions that had
// records go to the end, so that all get their turn when the response has no room for all.
func (s *fetchSession) told(k fetchKey, a *wire.FetchPartition) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partitions[k]
	if p == nil {
		return true
	}
	news = len(a.Records) > 0 || a.ErrorCode != 0 || a.DivergingEpoch >= 0 ||
		a.HighWatermark != p.highWatermark || a.LogStartOffset != p.logStart
	p.highWatermark, p.logStart = a.HighWatermark, a.LogStartOffset
	if a.ErrorCode != 0 {
		p.highWatermark = -1 // so that the end of the error is told
	}
	if len(a.Records) > 0 {
		s.order.MoveToBack(p.place)
	}
	return news
}

// create makes a session if the cache has room or can make it; else nil: the client goes without.
func (c *fetchSessions) create(wants []fetchWant, byID bool, now time.Time) *fetchSession {
	if len(wants) == 0 || len(wants) > maxSessionPartitions {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sessions) >= c.slots && !c.evictLocked(len(wants), now) {
		return nil
	}
	s := &fetchSession{
		id: c.freeIDLocked(), byID: byID, created: now, lastUsed: now, size: len(wants),
		epoch: nextSessionEpoch(sessionEpochInitial), partitions: make(map[fetchKey]*sessionPartition, len(wants)),
	}
	for _, w := range wants {
		s.wantLocked(w)
	}
	c.sessions[s.id] = s
	s.recency = c.recent.PushBack(s)
	return s
}

func (c *fetchSessions) freeIDLocked() int32 {
	for {
		if id := 1 + rand.Int32N(math.MaxInt32); c.sessions[id] == nil {
			return id
		}
	}
}

// evictLocked makes room for a session of size partitions: the longest unused one goes if it is idle, else the
// smallest one if it is old enough and smaller than the new one.
func (c *fetchSessions) evictLocked(size int, now time.Time) bool {
	oldest := c.recent.Front()
	if oldest == nil {
		return false
	}
	if s := oldest.Value.(*fetchSession); now.Sub(s.lastUsed) > fetchSessionEviction {
		c.removeLocked(s)
		return true
	}
	var victims []*fetchSession
	for _, s := range c.sessions {
		if s.size < size && now.Sub(s.created) > fetchSessionEviction {
			victims = append(victims, s)
		}
	}
	if len(victims) == 0 {
		return false
	}
	c.removeLocked(slices.MinFunc(victims, func(a, b *fetchSession) int {
		return cmp.Or(cmp.Compare(a.size, b.size), a.lastUsed.Compare(b.lastUsed))
	}))
	return true
}

// use finds a session and marks it used; nil when there is none.
func (c *fetchSessions) use(id int32, now time.Time) *fetchSession {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[id]
	if s != nil {
		s.lastUsed = now
		c.recent.MoveToBack(s.recency)
	}
	return s
}

func (c *fetchSessions) resized(s *fetchSession, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.size = size
}

func (c *fetchSessions) remove(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sessions[id]; s != nil {
		c.removeLocked(s)
	}
}

func (c *fetchSessions) removeLocked(s *fetchSession) {
	delete(c.sessions, s.id)
	c.recent.Remove(s.recency)
}

// sessionID is the session id of the answer; 0: there is no session.
func (p *fetchPlan) sessionID() int32 {
	if p.session == nil {
		return 0
	}
	return p.session.id
}

// answers reports whether the answer for a partition belongs into the response.
func (p *fetchPlan) answers(k fetchKey, a *wire.FetchPartition) bool {
	if p.session == nil {
		return true
	}
	news := p.session.told(k, a)
	return news || !p.incremental
}

func keyOf(version int16, topic string, id [16]byte, index int32) fetchKey {
	if version >= fetchTopicIDs {
		return fetchKey{id: ids.UUID(id), index: index}
	}
	return fetchKey{topic: topic, index: index}
}

// wantsOf lists the partitions of a request in its order, which matters when the response has no room for all.
func wantsOf(req *kmsg.FetchRequest) []fetchWant {
	wants := make([]fetchWant, 0, fetchedPartitions(req))
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			w := fetchWant{
				fetchKey: keyOf(req.Version, t.Topic, t.TopicID, p.Partition), offset: ids.Offset(p.FetchOffset),
				maxBytes: p.PartitionMaxBytes, leaderEpoch: ids.NoEpoch, lastFetchedEpoch: ids.NoEpoch,
			}
			if req.Version >= 9 {
				w.leaderEpoch = ids.LeaderEpoch(p.CurrentLeaderEpoch)
			}
			if req.Version >= 12 {
				w.lastFetchedEpoch = ids.LeaderEpoch(p.LastFetchedEpoch)
			}
			wants = append(wants, w)
		}
	}
	return wants
}

// fetchedPartitions is the number of partitions that a request names to be fetched.
func fetchedPartitions(req *kmsg.FetchRequest) (n int) {
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	return n
}
