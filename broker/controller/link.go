package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"cairn/internal/ids"
	"cairn/wire"
	"cairn/wire/private"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// link is an open way to one controller: a wire.Conn, or a localLink on the controller's own node.
type link interface {
	RoundTrip(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
	Done() <-chan struct{} // closed when the link is
	Close() error
}

// localLink leads to the controller in this process.
type localLink struct {
	conn *Conn
	once sync.Once
	done chan struct{}
}

func newLocalLink(c *Controller) *localLink {
	return &localLink{conn: c.NewConn(), done: make(chan struct{})}
}

func (l *localLink) RoundTrip(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return l.conn.Handle(ctx, req), nil
}

func (l *localLink) Done() <-chan struct{} { return l.done }

func (l *localLink) Close() error {
	l.once.Do(func() {
		l.conn.Close()
		close(l.done)
	})
	return nil
}

// channel is a way to the active controller, whoever that is: one link, which moves on to another voter when its own
// fails or turns out not to be the active one. One request at a time moves it; requests may overlap.
type channel struct {
	name   string
	cfg    ClientConfig
	voters []ids.NodeID

	mu     sync.Mutex
	link   link       // guarded by mu; nil when there is none
	node   ids.NodeID // guarded by mu; where link leads, or the voter to try next
	hinted ids.NodeID // guarded by mu; the last voter that was tried because the metadata names it
	closed bool       // guarded by mu
	dial   *dialing   // guarded by mu; the dial under way
}

// dialing is a dial that several requests may wait for.
type dialing struct {
	done chan struct{}
	link link
	err  error
}

// errTryNext is wrapped by errors after which the channel has moved on: the request may be tried again.
var errTryNext = errors.New("controller not reached")

func newChannel(name string, cfg ClientConfig) *channel {
	voters := sortedVoters(cfg.Voters)
	if len(voters) == 0 {
		voters = []ids.NodeID{cfg.NodeID}
	}
	return &channel{name: name, cfg: cfg, voters: voters, node: voters[0], hinted: ids.NoNode}
}

// do sends the request to the controller believed to be active, which has to answer within the given time. An error that
// wraps errTryNext means: the channel has moved on to another one; after any error but wire.ErrNotSent, and but
// NOT_CONTROLLER, the request may have been carried out.
func (ch *channel) do(ctx context.Context, req kmsg.Request, within time.Duration) (kmsg.Response, error) {
	attempt, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	l, err := ch.open(attempt)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTryNext, err)
	}
	resp, err := l.RoundTrip(attempt, req)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err // the caller went away, the controller is not to blame
	case err == nil && !saysNotController(resp):
		return resp, nil
	case err == nil:
		err = kerr.NotController
	}
	ch.drop(l)
	return nil, fmt.Errorf("%w: %w", errTryNext, err)
}

// broken returns a channel that is closed when the present link is, or nil if there is none.
func (ch *channel) broken() <-chan struct{} {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.link == nil {
		return nil
	}
	return ch.link.Done()
}

// open returns the present link, or makes one. Requests that come while one is being made wait for the same.
func (ch *channel) open(ctx context.Context) (link, error) {
	ch.mu.Lock()
	if ch.closed {
		ch.mu.Unlock()
		return nil, ErrClosed
	}
	if l := ch.link; l != nil {
		select {
		case <-l.Done():
			ch.link = nil
			defer l.Close()
		default:
			ch.mu.Unlock()
			return l, nil
		}
	}
	if d := ch.dial; d != nil {
		ch.mu.Unlock()
		select {
		case <-d.done:
			return d.link, d.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	d := &dialing{done: make(chan struct{})}
	ch.dial = d
	node := ch.node
	ch.mu.Unlock()

	d.link, d.err = ch.connect(ctx, node)
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.dial = nil
	switch {
	case d.err != nil:
		ch.nextLocked()
	case ch.closed:
		d.link.Close()
		d.link, d.err = nil, ErrClosed
	default:
		ch.link = d.link
	}
	close(d.done)
	return d.link, d.err
}

func (ch *channel) connect(ctx context.Context, node ids.NodeID) (link, error) {
	if node == ch.cfg.NodeID {
		if ch.cfg.Local == nil {
			return nil, fmt.Errorf("node %d is a voter without the controller role", node)
		}
		return newLocalLink(ch.cfg.Local), nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	nc, err := ch.cfg.Dial(ctx, ch.cfg.Voters[node])
	if err != nil {
		return nil, err
	}
	return wire.NewConn(nc, wire.ConnConfig{
		ClientID: fmt.Sprintf("broker-%d-%s", ch.cfg.NodeID, ch.name), ResponseTimeout: linkResponseTimeout,
	}), nil
}

const (
	dialTimeout = 2 * time.Second
	// linkResponseTimeout only bounds a link whose requests were all given up.
	linkResponseTimeout = 5 * time.Minute
)

// drop closes the link and moves on, unless somebody did already.
func (ch *channel) drop(l link) {
	l.Close()
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.link == l {
		ch.link = nil
		ch.nextLocked()
	}
}

// nextLocked chooses the voter to try next: the one the metadata names, if that is news, else the next in turn.
func (ch *channel) nextLocked() {
	if hint := ch.cfg.Store.Image().Controller; hint != ch.node && hint != ch.hinted && slices.Contains(ch.voters, hint) {
		ch.node, ch.hinted = hint, hint
		return
	}
	i := slices.Index(ch.voters, ch.node)
	ch.node = ch.voters[(i+1)%len(ch.voters)]
}

func (ch *channel) close() {
	ch.mu.Lock()
	l := ch.link
	ch.closed, ch.link = true, nil
	ch.mu.Unlock()
	if l != nil {
		l.Close()
	}
}

// saysNotController reports whether the response, or a part of it, says that the controller asked is not the active one.
func saysNotController(resp kmsg.Response) bool {
	switch r := resp.(type) {
	case *kmsg.BrokerRegistrationResponse:
		return r.ErrorCode == kerr.NotController.Code
	case *kmsg.BrokerHeartbeatResponse:
		return r.ErrorCode == kerr.NotController.Code
	case *kmsg.AllocateProducerIDsResponse:
		return r.ErrorCode == kerr.NotController.Code
	case *kmsg.AlterPartitionResponse:
		return r.ErrorCode == kerr.NotController.Code
	case *RegisterLeadersResponse:
		return r.Code == kerr.NotController.Code
	case *ReplicaCommandResponse:
		return r.Code == kerr.NotController.Code
	case *kmsg.DescribeQuorumResponse:
		return r.ErrorCode == kerr.NotController.Code
	case *kmsg.CreateTopicsResponse:
		return anyNotController(r.Topics, func(t kmsg.CreateTopicsResponseTopic) int16 { return t.ErrorCode })
	case *kmsg.DeleteTopicsResponse:
		return anyNotController(r.Topics, func(t kmsg.DeleteTopicsResponseTopic) int16 { return t.ErrorCode })
	case *kmsg.CreatePartitionsResponse:
		return anyNotController(r.Topics, func(t kmsg.CreatePartitionsResponseTopic) int16 { return t.ErrorCode })
	case *kmsg.IncrementalAlterConfigsResponse:
		return anyNotController(r.Resources, func(t kmsg.IncrementalAlterConfigsResponseResource) int16 { return t.ErrorCode })
	case *kmsg.AlterConfigsResponse:
		return anyNotController(r.Resources, func(t kmsg.AlterConfigsResponseResource) int16 { return t.ErrorCode })
	case *kmsg.ElectLeadersResponse:
		return r.ErrorCode == kerr.NotController.Code || slices.ContainsFunc(r.Topics, func(t kmsg.ElectLeadersResponseTopic) bool {
			return anyNotController(t.Partitions, func(p kmsg.ElectLeadersResponseTopicPartition) int16 { return p.ErrorCode })
		})
	case *kmsg.AlterPartitionAssignmentsResponse:
		return r.ErrorCode == kerr.NotController.Code
	case *kmsg.ListPartitionReassignmentsResponse:
		return r.ErrorCode == kerr.NotController.Code
	case *kmsg.UpdateFeaturesResponse:
		return r.ErrorCode == kerr.NotController.Code
	case *private.ElectionsResponse:
		return r.Body.Code == kerr.NotController.Code
	}
	return false
}

func anyNotController[T any](parts []T, code func(T) int16) bool {
	return slices.ContainsFunc(parts, func(p T) bool { return code(p) == kerr.NotController.Code })
}
