package coordinator

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"cairn/internal/clock"
	"cairn/internal/ids"

	"go.uber.org/zap"
)

const (
	defaultQueueMax      = 4096
	defaultWorkers       = 4
	defaultCommitTimeout = 5 * time.Second
	// holdMax is how long a machine whose partition changes its generation keeps its operations waiting for the next reign.
	holdMax = 10 * time.Second
	// loadBytes is how much of a log is read in one turn, so that shards take turns while several load.
	loadBytes = 1 << 20
	// operationsPerTurn bounds what one shard does before the others of its worker have a turn.
	operationsPerTurn = 128
	// shareBytes is how large a batch may grow by the operations of one turn.
	shareBytes = 64 << 10
	// flightsMax bounds the batches that are appended and not committed.
	flightsMax = 512
	// busyRetry is the wait before a partition without room is tried again, readRetry that after a failed read.
	busyRetry = 10 * time.Millisecond
	readRetry = time.Second
)

// Config of a Coordinator. New, Partitions and Log are needed.
type Config[M Machine] struct {
	// New makes the empty machine of a partition.
	New func(partition int32) M
	// Partitions is the number of partitions that the topic has now, 0 while there is no such topic.
	Partitions func() int32
	// CommitTimeout is how long an operation waits for its commit. 0: five seconds.
	CommitTimeout time.Duration
	// QueueMax bounds the operations that wait for one partition. 0: 4,096.
	QueueMax int
	// Workers is how many goroutines run the machines. 0: four.
	Workers int
	// Now is the clock; nil: the system's.
	Now func() time.Time
	Log *zap.Logger
}

// Coordinator runs one machine for each partition of a topic that this broker has a replica of. Operations reach the
// machines of the partitions that it leads.
type Coordinator[M Machine] struct {
	cfg  Config[M]
	pool *pool

	mu     sync.RWMutex
	shards map[int32]*shard[M] // guarded by mu
	closed bool                // guarded by mu
}

// New makes a Coordinator without partitions. Close ends it.
func New[M Machine](cfg Config[M]) (*Coordinator[M], error) {
	if cfg.New == nil || cfg.Partitions == nil || cfg.Log == nil {
		return nil, errors.New("coordinator: New, Partitions and Log are needed")
	}
	cfg.CommitTimeout = cmp.Or(cfg.CommitTimeout, defaultCommitTimeout)
	cfg.QueueMax = cmp.Or(cfg.QueueMax, defaultQueueMax)
	cfg.Workers = cmp.Or(cfg.Workers, defaultWorkers)
	if cfg.Now == nil {
		cfg.Now = clock.Now
	}
	return &Coordinator[M]{cfg: cfg, pool: newPool(cfg.Workers, cfg.Now), shards: map[int32]*shard[M]{}}, nil
}

// Partitions is the number of partitions of the topic.
func (c *Coordinator[M]) Partitions() int32 { return c.cfg.Partitions() }

// Do runs op on the machine that coordinates key. Exactly one of op and fail is called, perhaps before Do returns; fail
// with ErrNotCoordinator or ErrLoading. op answers through Effects.Then.
func (c *Coordinator[M]) Do(key string, op func(m M, now time.Time, fx *Effects), fail func(error)) {
	c.DoPartition(PartitionOf(key, c.cfg.Partitions()), op, fail)
}

// DoPartition is Do for a partition.
func (c *Coordinator[M]) DoPartition(partition int32, op func(m M, now time.Time, fx *Effects), fail func(error)) {
	c.submit(partition, operation[M]{run: op, fail: fail})
}

// Each is Do for all partitions of the topic, once each.
func (c *Coordinator[M]) Each(op func(partition int32, m M, now time.Time, fx *Effects), fail func(partition int32, err error)) {
	for i := range c.cfg.Partitions() {
		c.DoPartition(i,
			func(m M, now time.Time, fx *Effects) { op(i, m, now, fx) },
			func(err error) { fail(i, err) })
	}
}

// WriteMarker ends a transaction in a partition, and tells its machine. done hears ErrNotCoordinator, ErrLoading, ErrTimeout,
// ErrUnavailable, why the partition refuses the marker, or nil once it is committed.
func (c *Coordinator[M]) WriteMarker(partition int32, m Marker, done func(error)) {
	c.submit(partition, operation[M]{marker: &m, fail: done})
}

func (c *Coordinator[M]) submit(partition int32, op operation[M]) {
	c.mu.RLock()
	s := c.shards[partition]
	c.mu.RUnlock()
	if s == nil {
		op.fail(ErrNotCoordinator)
		return
	}
	op.deadline = c.cfg.Now().Add(c.cfg.CommitTimeout)
	if err := s.enqueue(op); err != nil {
		op.fail(err)
	}
}

// Attach tells that a replica of the partition runs here, or that the next generation of it does.
func (c *Coordinator[M]) Attach(partition int32, log Log) {
	c.mu.Lock()
	s := c.shards[partition]
	if s == nil && !c.closed {
		s = newShard(c, partition)
		c.shards[partition] = s
	}
	c.mu.Unlock()
	if s != nil {
		s.post(func(now time.Time) { s.attach(log, now) })
	}
}

// Detach tells that the partition has no replica here any more. Its machine is dropped.
func (c *Coordinator[M]) Detach(partition int32) {
	c.mu.Lock()
	s := c.shards[partition]
	delete(c.shards, partition)
	c.mu.Unlock()
	if s != nil {
		s.post(s.stop)
	}
}

// Advanced tells that the partition's high watermark has risen, or that its log was cut. It does not block.
func (c *Coordinator[M]) Advanced(partition int32) {
	if s := c.shard(partition); s != nil {
		s.schedule()
	}
}

// Began tells that this broker leads the partition.
func (c *Coordinator[M]) Began(partition int32, r Reign) {
	if s := c.shard(partition); s != nil {
		s.post(func(now time.Time) { s.began(r, now) })
	}
}

// Ended tells that a reign is over. held: the partition may go on here, in its next generation, with the same log; Began
// or Abandoned follow.
func (c *Coordinator[M]) Ended(partition int32, r Reign, held bool) {
	if s := c.shard(partition); s != nil {
		s.post(func(now time.Time) { s.ended(r, held, now) })
	}
}

// Abandoned tells that what was held does not go on here.
func (c *Coordinator[M]) Abandoned(partition int32) {
	if s := c.shard(partition); s != nil {
		s.post(s.abandoned)
	}
}

func (c *Coordinator[M]) shard(partition int32) *shard[M] {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.shards[partition]
}

// Close fails what waits, with ErrNotCoordinator, and ends the goroutines.
func (c *Coordinator[M]) Close() {
	c.mu.Lock()
	c.closed = true
	all := c.shards
	c.shards = map[int32]*shard[M]{}
	c.mu.Unlock()
	for _, s := range all {
		s.post(s.stop)
	}
	c.pool.close()
}

// Stats of one partition, for metrics.
type Stats struct {
	Partition int32
	// State is "following", "loading", "leading" or "held".
	State string
	// Applied is the offset up to which the machine has replayed the log.
	Applied ids.Offset
	// Queue is how many operations wait.
	Queue int
	Counters
}

// Counters are what a shard has counted since it was made.
type Counters struct {
	Loads, Rebuilds, Operations, AppendErrors, BadRecords, Records uint64
	// LoadTime is how long the last load took, from the reign's begin to Elected.
	LoadTime time.Duration
}

// Stats lists the partitions that have a replica here.
func (c *Coordinator[M]) Stats() []Stats {
	c.mu.RLock()
	defer c.mu.RUnlock()
	list := make([]Stats, 0, len(c.shards))
	for _, s := range c.shards {
		list = append(list, s.stats())
	}
	return list
}
