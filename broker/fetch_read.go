package broker

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/ids"
	"cairn/wire"

	"go.uber.org/zap"
)

var (
	errFencedEpoch      = errors.New("the client's leader epoch is older than the partition's")
	errUnknownEpoch     = errors.New("the client's leader epoch is newer than the partition's")
	errOffsetRange      = errors.New("offset out of range")
	errOffsetNotYet     = errors.New("the high watermark has not reached the start of the leader epoch")
	errUnknownTopicID   = errors.New("unknown topic id")
	errUnknownPartition = errors.New("unknown topic or partition")
)

// storeReaders is how many partitions of one fetch are read from the store at a time. While they are, whoever fetches has nothing else to do.
const storeReaders = 4

// fetchReader reads the partitions of one fetch in their order, within its limits.
type fetchReader struct {
	op  *fetchOp
	img *controller.Image
	// left is how many bytes the response may still take. The first records are given even beyond it, so that a batch
	// larger than every limit can be read at all.
	left   int
	total  int
	urgent bool // there is something to tell that is not records
}

// readAll fills the answers: one after the other until there is something, and for as long as one may take room that the next ones need.
func (f *fetchReader) readAll(parts []fetchPart) {
	wanted := 0
	for i := range parts {
		wanted += max(0, int(parts[i].maxBytes))
	}
	for i := range parts {
		if f.total > 0 && wanted <= f.left {
			f.readTogether(parts[i:])
			return
		}
		f.read(&parts[i])
		wanted -= max(0, int(parts[i].maxBytes))
	}
}

// readTogether reads partitions that do not depend on each other: those that need the store in turns with each other.
func (f *fetchReader) readTogether(parts []fetchPart) {
	var stored []*fetchPart
	for i := range parts {
		if f.needsStore(&parts[i]) {
			stored = append(stored, &parts[i])
			continue
		}
		f.read(&parts[i])
	}
	if len(stored) < 2 {
		for _, part := range stored {
			f.read(part)
		}
		return
	}
	readers := make([]fetchReader, min(storeReaders, len(stored)))
	var next atomic.Int64
	var wg sync.WaitGroup
	for i := range readers {
		readers[i] = *f
		wg.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(stored)); n = next.Add(1) - 1 {
				readers[i].read(stored[n])
			}
		})
	}
	wg.Wait()
	before := f.total
	for _, r := range readers {
		f.total += r.total - before
		f.left -= r.total - before
		f.urgent = f.urgent || r.urgent
	}
}

// needsStore says whether records of a partition are to be read from the store.
func (f *fetchReader) needsStore(part *fetchPart) bool {
	p, err := f.lookup(part.fetchKey)
	return err == nil && p.log().Stored(part.offset)
}

// read fills the answer for one partition.
func (f *fetchReader) read(part *fetchPart) {
	part.answer = wire.NewFetchPartition(part.index, 0)
	part.bytes = 0
	err := f.readPartition(part)
	if err != nil {
		f.op.b.reportDamage(err)
		part.answer = wire.NewFetchPartition(part.index, errorCode(err))
		part.partition = nil
		f.urgent = true
	}
}

func (f *fetchReader) readPartition(part *fetchPart) error {
	p, err := f.lookup(part.fetchKey)
	if err != nil {
		return err
	}
	r, err := p.leading(f.img, part.leaderEpoch)
	if err != nil {
		return err
	}
	part.partition, part.reign = p, r
	log, hw, a := p.log(), p.highWatermark(), &part.answer
	a.HighWatermark, a.LastStableOffset, a.LogStartOffset = int64(hw), int64(min(hw, p.lastStableOffset())), int64(log.Start())
	limit := hw
	part.awaits = p.watches
	if f.op.req.IsolationLevel == isolationReadCommitted {
		limit, part.awaits = ids.Offset(a.LastStableOffset), &p.stable
		a.AbortedTransactions = []wire.AbortedTransaction{}
	}
	part.threshold = max(limit, part.offset) + 1
	if diverges, err := checkDivergence(log, part); diverges || err != nil {
		f.urgent = true
		return err
	}
	if part.offset < log.Start() || part.offset > log.End() {
		return fmt.Errorf("%w: offset %d of %s-%d, which has [%d, %d)", errOffsetRange, part.offset, p.topic, p.index, log.Start(), log.End())
	}
	return f.readRecords(log, part, limit)
}

// reportDamage logs a damaged batch of the store with its place. Clients learn the error code alone.
func (b *Broker) reportDamage(err error) {
	var c *engine.CorruptError
	if errors.As(err, &c) {
		b.noise.warn(b.log, "stored batch is damaged", zap.String("topic", c.Topic), zap.Int32("partition", c.Partition),
			zap.Int64("offset", int64(c.Offset)), zap.Error(c.Err))
	}
}

// storeDamaged hears of each damaged batch that anybody came across.
func (b *Broker) storeDamaged(owner engine.Binding, err *engine.CorruptError) {
	if b.replicas != nil {
		b.replicas.noteDamage(owner, err)
	}
}

// lookup finds the partition by what the client called its topic.
func (f *fetchReader) lookup(k fetchKey) (*partition, error) {
	if f.op.req.Version >= fetchTopicIDs {
		return f.op.b.replicas.lookupID(k.id, k.index)
	}
	return f.op.b.replicas.lookup(k.topic, k.index)
}

// checkDivergence tells a client whose last record is not the leader's where to go back to.
func checkDivergence(log *engine.Log, part *fetchPart) (diverges bool, err error) {
	if part.lastFetchedEpoch < 0 {
		return false, nil
	}
	epoch, end := log.EndOffsetForEpoch(part.lastFetchedEpoch)
	switch {
	case epoch == ids.NoEpoch:
		return false, fmt.Errorf("%w: leader epoch %d is not known", errOffsetRange, part.lastFetchedEpoch)
	case epoch < part.lastFetchedEpoch || end < part.offset:
		part.answer.DivergingEpoch, part.answer.DivergingEndOffset = int32(epoch), int64(end)
		return true, nil
	}
	return false, nil
}

func (f *fetchReader) readRecords(log *engine.Log, part *fetchPart, limit ids.Offset) error {
	first := f.total == 0
	most := min(int(part.maxBytes), f.left)
	if part.offset >= limit || (most <= 0 && !first) {
		return nil
	}
	o := engine.ReadOptions{From: part.offset, Limit: limit, MaxBytes: max(most, 0), MinOneBatch: first}
	var recs engine.Records
	var err error
	if f.op.req.IsolationLevel == isolationReadCommitted {
		recs, err = part.readCommitted(log, o)
	} else {
		recs, err = log.Read(o)
	}
	if err != nil {
		return err
	}
	recs = plantedRecords(recs)
	part.answer.Records, part.bytes = recs.Parts, recs.Bytes
	f.total += recs.Bytes
	f.left -= recs.Bytes
	return nil
}

// readCommitted reads, and lists the aborted transactions that have records in what it read.
func (part *fetchPart) readCommitted(log *engine.Log, o engine.ReadOptions) (engine.Records, error) {
	recs, aborted, err := log.ReadCommitted(o)
	for _, t := range aborted {
		part.answer.AbortedTransactions = append(part.answer.AbortedTransactions, wire.AbortedTransaction{ProducerID: t.ProducerID, FirstOffset: int64(t.First)})
	}
	return recs, err
}

// leading returns the reign under which a client that knows leader epoch known (NoEpoch: says nothing) is served.
func (p *partition) leading(img *controller.Image, known ids.LeaderEpoch) (*reign, error) {
	r := p.serving()
	if known >= 0 {
		current := ids.NoEpoch
		if r != nil {
			current = r.epoch
		} else if state, ok := img.PartitionOf(p.topicID, p.index); ok {
			current = state.LeaderEpoch
		}
		switch {
		case known < current:
			return nil, fmt.Errorf("%w: %d, it is %d", errFencedEpoch, known, current)
		case known > current:
			return nil, fmt.Errorf("%w: %d, it is %d", errUnknownEpoch, known, current)
		}
	}
	if r == nil || !p.owner.leaseValid() {
		return nil, errNotLeader
	}
	return r, nil
}
