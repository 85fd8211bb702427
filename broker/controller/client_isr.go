package controller

import (
	"fmt"
	"sync"
	"time"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

const (
	// changesPerRequest bounds one AlterPartition.
	changesPerRequest = 1000
	// changeWithin is how long a controller has for it before another one is tried. A leader proposes again, if it still
	// wants to, so this need not be as long as for other requests.
	changeWithin = 3 * time.Second
)

// changeQueue holds ISR changes that were not sent yet. A leader has one change of a partition under way at most, so the
// queue is bounded by the partitions that this broker leads.
type changeQueue struct {
	wake chan struct{} // a token: there is something to send

	mu      sync.Mutex
	pending []pendingChange // guarded by mu
	closed  error           // guarded by mu
}

type pendingChange struct {
	change ISRChange
	done   func(error)
}

func newChangeQueue() changeQueue { return changeQueue{wake: make(chan struct{}, 1)} }

// AlterPartition asks the controller for another ISR, together with what else is asked for at the moment. It is sent once:
// done is called once, by a goroutine of the client or, on a closed one, by this call itself, and must not block. Nil: the
// controller has taken the change, and the image will show it. Another error than one of kerr says that the outcome is not
// known.
func (c *Client) AlterPartition(change ISRChange, done func(error)) {
	q := &c.changes
	q.mu.Lock()
	closed := q.closed
	if closed == nil {
		q.pending = append(q.pending, pendingChange{change, done})
	}
	q.mu.Unlock()
	if closed != nil {
		done(closed)
		return
	}
	put(q.wake)
}

// runChanges is the goroutine that sends them.
func (c *Client) runChanges() {
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.changes.wake:
		}
		for batch := c.changes.take(); len(batch) > 0; batch = c.changes.take() {
			c.sendChanges(batch)
		}
	}
}

func (q *changeQueue) take() []pendingChange {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.pending), changesPerRequest)
	batch := q.pending[:n:n]
	if q.pending = q.pending[n:]; len(q.pending) == 0 {
		q.pending = nil
	}
	return batch
}

// fail answers everything with err, now and from now on.
func (q *changeQueue) fail(err error) {
	q.mu.Lock()
	q.closed = err
	pending := q.pending
	q.pending = nil
	q.mu.Unlock()
	for _, p := range pending {
		p.done(err)
	}
}

// sendChanges sends one batch and answers every change of it.
func (c *Client) sendChanges(batch []pendingChange) {
	codes, err := c.alterPartitions(batch)
	if err != nil {
		c.log.Debug("ISR changes not made", zap.Int("partitions", len(batch)), zap.Error(err))
	}
	for _, p := range batch {
		code, answered := codes[leaderKey{p.change.TopicID, p.change.Partition}]
		switch {
		case err != nil:
			p.done(err)
		case !answered:
			p.done(fmt.Errorf("the controller's answer lacks partition %d of topic id %s", p.change.Partition, p.change.TopicID))
		default:
			p.done(kerr.ErrorForCode(code))
		}
	}
}

func (c *Client) alterPartitions(batch []pendingChange) (map[leaderKey]int16, error) {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.Version = 3
	req.BrokerID, req.BrokerEpoch = int32(c.cfg.NodeID), c.Registration().BrokerEpoch
	topics := map[ids.UUID]int{}
	for _, p := range batch {
		at, known := topics[p.change.TopicID]
		if !known {
			at = len(req.Topics)
			topics[p.change.TopicID] = at
			t := kmsg.NewAlterPartitionRequestTopic()
			t.TopicID = p.change.TopicID
			req.Topics = append(req.Topics, t)
		}
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, p.change.request())
	}
	resp, err := c.data.do(c.ctx, req, changeWithin)
	if err != nil {
		return nil, err
	}
	r := resp.(*kmsg.AlterPartitionResponse)
	if r.ErrorCode != 0 {
		return nil, kerr.ErrorForCode(r.ErrorCode)
	}
	codes := make(map[leaderKey]int16, len(batch))
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			codes[leaderKey{r.Topics[i].TopidID, r.Topics[i].Partitions[j].Partition}] = r.Topics[i].Partitions[j].ErrorCode
		}
	}
	return codes, nil
}

func (c ISRChange) request() kmsg.AlterPartitionRequestTopicPartition {
	p := kmsg.NewAlterPartitionRequestTopicPartition()
	p.Partition, p.LeaderEpoch, p.PartitionEpoch = c.Partition, int32(c.LeaderEpoch), c.PartitionEpoch
	for _, m := range c.ISR {
		e := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		e.BrokerID, e.BrokerEpoch = int32(m.Node), m.Epoch
		p.NewEpochISR = append(p.NewEpochISR, e)
	}
	return p
}
