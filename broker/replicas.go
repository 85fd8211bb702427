package broker

import (
	"cmp"
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"cairn/broker/controller"
	"cairn/broker/topicconfig"
	"cairn/engine"
	"cairn/internal/clock"
	"cairn/internal/ids"
	"cairn/raftgroup"

	"go.uber.org/zap"
)

const (
	// replicaTick is how often dropped proposals, unfinished elections and failed starts are looked for.
	replicaTick = 50 * time.Millisecond
	// transitionWorkers is how many replicas are started, stopped or deleted at a time.
	transitionWorkers = 32
	// openWorkers is how many reigns are opened at a time; opening one may wait for room in its group's queue.
	openWorkers = 16
	// transitionRetry is the wait after a failed start, stop or deletion.
	transitionRetry = 2 * time.Second

	defaultProducerExpiry = 24 * time.Hour
	defaultProducerCheck  = 10 * time.Minute
)

// replicaManagerConfig is what a replicaManager works with. All fields are needed; Static may be nil.
type replicaManagerConfig struct {
	NodeID ids.NodeID
	// Directory is the id of the data directory. Replicas that the controller gave out for another one are not started:
	// their log and votes are gone.
	Directory ids.UUID
	Images    *controller.Store
	Client    *controller.Client
	Engine    *engine.Engine
	Host      *raftgroup.Host
	// Static has the broker's own properties, the weakest source of topic settings.
	Static topicconfig.Layer
	// ProducerExpiry is how long a producer without batches is remembered (producer.id.expiration.ms), as of now; nil: Kafka's
	// default. ProducerCheck is how often that is looked at (producer.id.expiration.check.interval.ms); 0: Kafka's default.
	ProducerExpiry func() time.Duration
	ProducerCheck  time.Duration
	// RetentionCheck is log.retention.check.interval.ms. 0: Kafka's default.
	RetentionCheck time.Duration
	// Cleaner is how compaction works, as of now; nil: nothing is compacted.
	Cleaner func() cleanerSettings
	// LagTimeMax is replica.lag.time.max.ms. 0: Kafka's default. Now is the clock for it, monotonic; nil: the system's.
	LagTimeMax time.Duration
	Now        func() time.Time
	// Coordinations are told of the partitions of their topics.
	Coordinations map[string]coordination
	// Dial connects to the broker listener of another node.
	Dial func(ctx context.Context, node ids.NodeID) (net.Conn, error)
	// Fail ends the process: the store is damaged beyond what can be made anew for one partition.
	Fail func(error)
	// Waiting has what waits for partitions of this broker; only appends of its own need it.
	Waiting *purgatory
	Log     *zap.Logger
}

// replicaManager keeps the partitions hosted here in line with the metadata image: it starts, stops and deletes
// replicas, registers them as leaders, and opens their reigns.
type replicaManager struct {
	cfg replicaManagerConfig

	// What runs until the end of run: the goroutines of transitions and openings.
	running sync.WaitGroup
	// DeleteRecords requests under way; Add under mu, while not closed.
	deleting sync.WaitGroup

	mu       sync.RWMutex
	byName   map[string][]*partition              // guarded by mu; by partition number, nil where none is hosted
	byID     map[ids.UUID][]*partition            // guarded by mu
	slots    map[ids.PartitionID]*replicaSlot     // guarded by mu
	queue    []*replicaSlot                       // guarded by mu; slots that wait for a transition worker
	busy     int                                  // guarded by mu; transition workers
	closed   bool                                 // guarded by mu; nothing is started any more
	settings map[string]*topicSettings            // guarded by mu; of the topics hosted here
	listed   bool                                 // guarded by mu; what was stored at the start has its slots
	opens    map[*partition]*controller.Partition // guarded by mu; reigns to begin

	elections struct {
		sync.Mutex
		pending map[*partition]ids.Term // guarded by elections; to be registered
	}
	electionWake chan struct{} // capacity 1
	openWake     chan struct{} // capacity 1
	downPeers    chan ids.NodeID
	isr          isrChanges
	transfers    transfers
	repairs      repairs
	cleaner      *cleaner // nil: nothing is compacted

	ageClock  ageClock // of retention
	noise     *logLimiter
	throttle  *throttle
	copies    chan struct{} // a token for each prefix that is being copied
	deletions chan struct{} // a token for each DeleteRecords request
	leaders   leaderConns
	stopping  context.Context
	stop      context.CancelFunc // ends waits for other nodes
}

func newReplicaManager(cfg replicaManagerConfig) *replicaManager {
	if cfg.ProducerExpiry == nil {
		cfg.ProducerExpiry = func() time.Duration { return defaultProducerExpiry }
	}
	cfg.ProducerCheck = cmp.Or(cfg.ProducerCheck, defaultProducerCheck)
	cfg.RetentionCheck = cmp.Or(cfg.RetentionCheck, defaultRetentionCheck)
	cfg.LagTimeMax = cmp.Or(cfg.LagTimeMax, defaultLagTime)
	if cfg.Now == nil {
		cfg.Now = clock.Now
	}
	m := &replicaManager{
		cfg: cfg, noise: newLogLimiter(time.Minute), settings: map[string]*topicSettings{}, byName: map[string][]*partition{}, byID: map[ids.UUID][]*partition{},
		slots: map[ids.PartitionID]*replicaSlot{}, opens: map[*partition]*controller.Partition{},
		electionWake: make(chan struct{}, 1), openWake: make(chan struct{}, 1), downPeers: make(chan ids.NodeID, 64),
		isr: newISRChanges(), transfers: newTransfers(), repairs: newRepairs(), copies: make(chan struct{}, copiesAtOnce), deletions: make(chan struct{}, deletionsAtOnce),
	}
	if cfg.Cleaner != nil {
		m.cleaner = newCleaner(m, cfg.Cleaner)
	}
	m.throttle = newThrottle(cfg.NodeID, cfg.Images, cfg.Static, cfg.Now)
	m.stopping, m.stop = context.WithCancel(context.Background())
	m.elections.pending = map[*partition]ids.Term{}
	return m
}

// run follows the metadata image until ctx ends. It is started once the metadata replica has reached the position that
// the controller named at registration, and returns when what it started has ended; replicas keep running until
// shutdown.
func (m *replicaManager) run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { m.runElections(ctx) })
	loops.Go(func() { m.runTicks(ctx) })
	loops.Go(func() { m.runFailOver(ctx) })
	loops.Go(func() { m.runMembers(ctx) })
	loops.Go(func() { m.runLosses(ctx) })
	loops.Go(func() { m.runISR(ctx) })
	loops.Go(func() { m.runTransfers(ctx) })
	loops.Go(func() { m.runRepairs(ctx) })
	loops.Go(func() { m.runRetention(ctx) })
	if m.cleaner != nil {
		loops.Go(func() { m.cleaner.run(ctx) })
	}
	loops.Go(func() { m.runCheckpoints(ctx) })
	for range openWorkers {
		loops.Go(func() { m.runOpenings(ctx) })
	}
	changed, stop := m.cfg.Images.Watch()
	defer stop()
	for {
		select {
		case <-changed:
			m.reconcile(m.cfg.Images.Image())
		case <-ctx.Done():
			loops.Wait()
			m.running.Wait()
			return
		}
	}
}

// lookup finds a hosted partition by its topic's name. Errors: errNotLeader when others host it, errUnknownPartition.
func (m *replicaManager) lookup(topic string, index int32) (*partition, error) {
	m.mu.RLock()
	p := at(m.byName[topic], index)
	m.mu.RUnlock()
	if p != nil {
		return p, nil
	}
	if _, ok := m.cfg.Images.Image().Partition(topic, index); ok {
		return nil, errNotLeader
	}
	return nil, errUnknownPartition
}

// lookupID is lookup by topic id; errUnknownTopicID when there is no such topic.
func (m *replicaManager) lookupID(id ids.UUID, index int32) (*partition, error) {
	m.mu.RLock()
	p := at(m.byID[id], index)
	m.mu.RUnlock()
	if p != nil {
		return p, nil
	}
	img := m.cfg.Images.Image()
	if img.TopicsByID[id] == nil {
		return nil, errUnknownTopicID
	}
	if _, ok := img.PartitionOf(id, index); ok {
		return nil, errNotLeader
	}
	return nil, errUnknownPartition
}

func at(ps []*partition, index int32) *partition {
	if index < 0 || int(index) >= len(ps) {
		return nil
	}
	return ps[index]
}

// partitions lists the hosted partitions.
func (m *replicaManager) partitions() []*partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]*partition, 0, len(m.slots))
	for _, ps := range m.byID {
		for _, p := range ps {
			if p != nil {
				all = append(all, p)
			}
		}
	}
	return all
}

// leaseValid reports whether this broker may do client work: the controller has answered it lately.
func (m *replicaManager) leaseValid() bool { return m.cfg.Client.Lease() }

// peerDown hears of a dead peer: the groups it led elect at once. It does not block; with 64 deaths unhandled Raft's
// own timers do the rest.
func (m *replicaManager) peerDown(node ids.NodeID) {
	select {
	case m.downPeers <- node:
	default:
	}
}

func (m *replicaManager) runFailOver(ctx context.Context) {
	for {
		select {
		case node := <-m.downPeers:
			n := m.cfg.Host.FailOver(node)
			m.forgetFollower(node)
			m.cfg.Log.Info("peer is down", zap.Int32("peer", int32(node)), zap.Int("groupsToElect", n))
		case <-ctx.Done():
			return
		}
	}
}

// forgetFollower has leaders forget how far the replicas of a dead broker were.
func (m *replicaManager) forgetFollower(node ids.NodeID) {
	img := m.cfg.Images.Image()
	for _, p := range m.partitions() {
		if state, ok := img.PartitionOf(p.topicID, p.index); ok {
			if at := state.ReplicaOf(node); at >= 0 {
				p.followers.forget(state.ReplicaIDs[at])
			}
		}
	}
}

// reconcile brings what is hosted in line with the image.
func (m *replicaManager) reconcile(img *controller.Image) {
	wanted := map[ids.PartitionID]bool{}
	for _, t := range img.Topics {
		for i, state := range t.Partitions {
			at := state.ReplicaOf(m.cfg.NodeID)
			if at < 0 {
				continue
			}
			wanted[state.ID] = true
			if state.Directories[at] != m.cfg.Directory {
				continue
			}
			info := engine.PartitionInfo{ID: state.ID, Topic: t.Name, TopicID: t.ID, Partition: int32(i)}
			p := m.want(info, state)
			if p == nil {
				continue
			}
			m.applySettings(p, img)
			p.noteImage()
			m.follow(p, state)
		}
	}
	m.dropUnwanted(wanted)
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.settings, func(topic string, _ *topicSettings) bool { return img.Topics[topic] == nil })
}

// layers are the sources of a topic's settings on this broker.
func (m *replicaManager) layers(img *controller.Image, topic string) topicconfig.Layers {
	return topicconfig.Layers{
		Topic: img.TopicConfigs(topic), Broker: img.BrokerConfigs(m.cfg.NodeID), Cluster: img.ClusterConfigs(), Static: m.cfg.Static,
	}
}

// applySettings gives p its topic's settings as of the image. The partitions of a topic share one parsed copy.
func (m *replicaManager) applySettings(p *partition, img *controller.Image) {
	layers := m.layers(img, p.topic)
	if s := p.settings.Load(); s != nil && s.madeFrom(layers) {
		return
	}
	m.mu.Lock()
	s := m.settings[p.topic]
	m.mu.Unlock()
	if s == nil || !s.madeFrom(layers) {
		var err error
		if s, err = parseTopicSettings(layers); err != nil {
			m.cfg.Log.Warn("topic config ignored in part", zap.String("topic", p.topic), zap.Error(err))
		}
		m.mu.Lock()
		if other := m.settings[p.topic]; other != nil && other.madeFrom(layers) {
			s = other // the worker of another partition was faster
		} else {
			m.settings[p.topic] = s
		}
		m.mu.Unlock()
	}
	p.settings.Store(s)
}

// show makes a started partition visible to handlers.
func (m *replicaManager) show(p *partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byName[p.topic] = put(m.byName[p.topic], p.index, p)
	m.byID[p.topicID] = put(m.byID[p.topicID], p.index, p)
}

// hide takes a partition from handlers.
func (m *replicaManager) hide(p *partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at(m.byID[p.topicID], p.index) == p {
		m.byID[p.topicID] = without(m.byID, p.topicID, p.index)
	}
	if at(m.byName[p.topic], p.index) == p {
		m.byName[p.topic] = without(m.byName, p.topic, p.index)
	}
	if len(m.byID[p.topicID]) == 0 {
		delete(m.byID, p.topicID)
	}
	if len(m.byName[p.topic]) == 0 {
		delete(m.byName, p.topic)
	}
}

func put(ps []*partition, index int32, p *partition) []*partition {
	for int(index) >= len(ps) {
		ps = append(ps, nil)
	}
	ps[index] = p
	return ps
}

// without clears one place; the list is nil when nothing is left in it.
func without[K comparable](lists map[K][]*partition, k K, index int32) []*partition {
	ps := lists[k]
	ps[index] = nil
	if !slices.ContainsFunc(ps, func(p *partition) bool { return p != nil }) {
		return nil
	}
	return ps
}

// label names a partition in messages.
func label(info engine.PartitionInfo) string {
	return info.Topic + "-" + strconv.Itoa(int(info.Partition))
}
