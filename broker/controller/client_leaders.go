package controller

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// leadersPerRequest bounds one request to the controller.
const leadersPerRequest = 1000

// LeaderGrant is the controller's answer to an accepted leader registration.
type LeaderGrant struct {
	LeaderEpoch    ids.LeaderEpoch
	PartitionEpoch int32
}

// leaderQueue holds the reports that have no final answer yet, at most one per partition.
type leaderQueue struct {
	wake  chan struct{} // a token: there is something to do
	retry chan struct{} // a token: what was refused may be accepted now

	mu      sync.Mutex
	pending map[leaderKey]*pendingLeader // guarded by mu
	order   []leaderKey                  // guarded by mu; keys of pending, oldest first
	dead    []*pendingLeader             // guarded by mu; superseded by a newer report
	closed  error                        // guarded by mu
}

type leaderKey struct {
	topic     ids.UUID
	partition int32
}

type pendingLeader struct {
	report LeaderReport
	done   func(LeaderReport, LeaderGrant, error)
}

func (p *pendingLeader) key() leaderKey { return leaderKey{p.report.TopicID, p.report.Partition} }

func newLeaderQueue() leaderQueue {
	return leaderQueue{wake: make(chan struct{}, 1), retry: make(chan struct{}, 1), pending: map[leaderKey]*pendingLeader{}}
}

// put puts a token into the channel unless it holds one.
func put(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// RegisterLeaders hands in registrations of Raft leaders on this broker. They are sent in bulk, oldest first, and tried
// until the controller has decided; while the broker is fenced they wait. done is called once for each report, and must not
// block: with the grant, or with ErrSuperseded or ErrClosed. A goroutine of the client calls it, or Close, or, on a client
// that is closed, this call itself. A newer report of a partition supersedes one that is pending.
func (c *Client) RegisterLeaders(reports []LeaderReport, done func(LeaderReport, LeaderGrant, error)) {
	q := &c.leaders
	q.mu.Lock()
	closed := q.closed
	for _, r := range reports {
		if closed != nil {
			break
		}
		p := &pendingLeader{r, done}
		key := p.key()
		if old := q.pending[key]; old != nil {
			q.dead = append(q.dead, old)
		} else {
			q.order = append(q.order, key)
		}
		q.pending[key] = p
	}
	q.mu.Unlock()
	put(q.wake)
	for _, r := range reports {
		if closed != nil {
			done(r, LeaderGrant{}, closed)
		}
	}
}

// runLeaders is the goroutine that sends them.
func (c *Client) runLeaders() {
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.leaders.wake:
		}
		for {
			batch := c.leaders.take()
			if len(batch) == 0 {
				break
			}
			if err := c.sendLeaders(batch); err != nil {
				c.log.Debug("leaders not registered yet", zap.Int("leaders", len(batch)), zap.Error(err))
				select {
				case <-c.leaders.retry:
				case <-time.After(retryBackoff):
				case <-c.ctx.Done():
					return
				}
			}
		}
	}
}

// take answers superseded reports and returns the oldest ones that are pending. They stay pending.
func (q *leaderQueue) take() []*pendingLeader {
	q.mu.Lock()
	dead := q.dead
	q.dead = nil
	var batch []*pendingLeader
	for _, k := range q.order[:min(len(q.order), leadersPerRequest)] {
		batch = append(batch, q.pending[k])
	}
	q.mu.Unlock()
	for _, p := range dead {
		p.done(p.report, LeaderGrant{}, ErrSuperseded)
	}
	return batch
}

// finish takes the batch out of the queue, and returns those that no newer report has taken the place of.
func (q *leaderQueue) finish(batch []*pendingLeader) map[*pendingLeader]bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	finished := make(map[*pendingLeader]bool, len(batch))
	for _, p := range batch {
		if key := p.key(); q.pending[key] == p {
			delete(q.pending, key)
			finished[p] = true
		}
	}
	q.order = slices.DeleteFunc(q.order, func(k leaderKey) bool { return q.pending[k] == nil })
	return finished
}

// fail answers everything with err, now and from now on.
func (q *leaderQueue) fail(err error) {
	q.mu.Lock()
	q.closed = err
	all := q.dead
	for _, k := range q.order {
		all = append(all, q.pending[k])
	}
	q.dead, q.order, q.pending = nil, nil, map[leaderKey]*pendingLeader{}
	q.mu.Unlock()
	for _, p := range all {
		p.done(p.report, LeaderGrant{}, err)
	}
}

// sendLeaders sends one batch and answers what the controller has decided. An error: nothing was decided, try again.
func (c *Client) sendLeaders(batch []*pendingLeader) error {
	req := &RegisterLeadersRequest{}
	req.Broker, req.Epoch = c.cfg.NodeID, c.Registration().BrokerEpoch
	for _, p := range batch {
		req.Leaders = append(req.Leaders, p.report)
	}
	resp, err := c.data.do(c.ctx, req, requestWithin)
	if err != nil {
		return err
	}
	r := resp.(*RegisterLeadersResponse)
	if r.Code != 0 || len(r.Items) != len(batch) {
		return fmt.Errorf("%w: %s", kerr.ErrorForCode(r.Code), r.Message)
	}
	finished := c.leaders.finish(batch)
	for i, p := range batch {
		if finished[p] { // else it is the newer report's turn, and this one is answered as superseded
			c.decided(p, r.Items[i])
		}
	}
	return nil
}

func (c *Client) decided(p *pendingLeader, res ItemResult) {
	if res.Code == 0 {
		p.done(p.report, LeaderGrant{res.LeaderEpoch, res.PartitionEpoch}, nil)
		return
	}
	if res.Code != kerr.FencedLeaderEpoch.Code && res.Code != kerr.UnknownTopicID.Code {
		c.log.Warn("leader registration refused", zap.Any("report", p.report), zap.String("reason", res.Message))
	}
	p.done(p.report, LeaderGrant{}, fmt.Errorf("%w: %w: %s", ErrSuperseded, kerr.ErrorForCode(res.Code), res.Message))
}
