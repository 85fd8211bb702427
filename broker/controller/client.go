package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"cairn/internal/clock"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// Errors of the Client.
var (
	ErrClosed = errors.New("controller client closed")
	// ErrSuperseded refuses a leader registration for good: a later term, a newer generation or a newer report of the same
	// partition has taken its place, or the partition is gone.
	ErrSuperseded = errors.New("leader registration superseded")
	// ErrRejected refuses the broker itself, for good: another cluster's, or a second process under the same node id.
	ErrRejected = errors.New("broker rejected by the controller")
)

const (
	retryBackoff = 50 * time.Millisecond // between attempts at a request
	firstBackoff = 5 * time.Millisecond  // between attempts to register, doubled up to maxBackoff: a broker starts quickly
	maxBackoff   = 200 * time.Millisecond
	eagerBeat    = 50 * time.Millisecond // between heartbeats while an unfencing or a shutdown is awaited
	// requestWithin is how long a controller has for a request before another is tried.
	requestWithin = 10 * time.Second
)

// ClientConfig configures a Client. Zero durations stand for the defaults.
type ClientConfig struct {
	NodeID ids.NodeID
	// Incarnation is new in each process, Directory is the data directory's id.
	Incarnation, Directory ids.UUID
	Endpoints              []Endpoint
	Rack                   *string
	LogFlush, BootID       string
	// OpenedNs is when the data directory was opened, by the clock of the machine's run that BootID names; 0: unknown.
	OpenedNs uint64
	// PreviousEpoch is the broker epoch of the last process on this data directory if it was closed in order, else -1.
	PreviousEpoch int64
	// ClusterID is the data directory's; empty if it has none yet.
	ClusterID string

	// Voters are the addresses of controller.quorum.voters by node; empty if this node is the only one.
	Voters map[ids.NodeID]string
	// Local is this node's own controller, nil without the controller role.
	Local *Controller
	// Store is the metadata replica of this node.
	Store *Store
	// Dial opens a connection to a controller listener. Not needed when this node is the only voter.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Ends returns how far the replicas here reach, for the heartbeats; the caller owns the slice. It must not block. nil: none.
	Ends func() []PartitionEnd

	HeartbeatInterval time.Duration
	SessionTimeout    time.Duration
	Logger            *zap.Logger
}

// Validate joins all errors.
func (c ClientConfig) Validate() error {
	var errs []error
	if c.NodeID < 0 {
		errs = append(errs, fmt.Errorf("node id %d is negative", c.NodeID))
	}
	if c.Incarnation.IsZero() {
		errs = append(errs, errors.New("no incarnation id"))
	}
	if c.Store == nil {
		errs = append(errs, errors.New("no metadata store"))
	}
	if len(c.Voters) == 0 && c.Local == nil {
		errs = append(errs, errors.New("no voters, and no controller on this node"))
	}
	_, self := c.Voters[c.NodeID]
	if self && c.Local == nil {
		errs = append(errs, fmt.Errorf("node %d is a voter without the controller role", c.NodeID))
	}
	if len(c.Voters) > 1 && c.Dial == nil || len(c.Voters) == 1 && !self && c.Dial == nil {
		errs = append(errs, errors.New("no way to dial the voters"))
	}
	if c.HeartbeatInterval < 0 || c.SessionTimeout < 0 {
		errs = append(errs, errors.New("negative interval"))
	}
	if w := c.withDefaults(); w.HeartbeatInterval >= w.SessionTimeout {
		errs = append(errs, fmt.Errorf("heartbeats every %v do not keep a session of %v", w.HeartbeatInterval, w.SessionTimeout))
	}
	return errors.Join(errs...)
}

func (c ClientConfig) withDefaults() ClientConfig {
	setDefault(&c.HeartbeatInterval, DefaultHeartbeatInterval)
	setDefault(&c.SessionTimeout, DefaultSessionTimeout)
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

// Client is a broker's side of the controller. All methods are safe for concurrent use.
type Client struct {
	cfg     ClientConfig
	log     *zap.Logger
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	done    sync.WaitGroup
	control *channel // registration and heartbeats: the controller takes its end for the broker's
	data    *channel // leader registrations and producer ids
	admin   *channel // forwarded requests, which may wait long
	slow    *channel // forwarded requests that wait for elections

	base  time.Time     // of lease
	lease atomic.Int64  // valid until base + lease, by the monotonic clock; 0: fenced or never answered
	beat  chan struct{} // a token: heartbeat now

	mu           sync.Mutex
	registration Registration  // guarded by mu; zero before Register
	wantFence    bool          // guarded by mu
	wantShutdown bool          // guarded by mu
	standing     standing      // guarded by mu; of the last answered heartbeat
	changed      chan struct{} // guarded by mu; closed and replaced with each answer
	started      bool          // guarded by mu
	failure      error         // guarded by mu; why heartbeats stopped
	failed       chan struct{} // closed with failure

	leaders   leaderQueue
	changes   changeQueue
	producers producerIDs
}

// standing is what the controller thinks of the broker.
type standing struct {
	unfenced, mayStop bool
}

// NewClient returns a client that has not contacted anybody.
func NewClient(cfg ClientConfig) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("controller client: %w", err)
	}
	cfg = cfg.withDefaults()
	ctx, stop := context.WithCancel(context.Background())
	return &Client{
		cfg: cfg, log: cfg.Logger, ctx: ctx, stop: stop,
		control: newChannel("control", cfg), data: newChannel("data", cfg), admin: newChannel("admin", cfg),
		slow: newChannel("elections", cfg),
		base: clock.Now(), beat: make(chan struct{}, 1), wantFence: true,
		changed: make(chan struct{}), failed: make(chan struct{}),
		leaders: newLeaderQueue(), changes: newChangeQueue(), producers: newProducerIDs(),
	}, nil
}

// Register registers the broker, and tries until ctx ends. ErrRejected: it must not go on. Call Start soon after: the
// session runs.
func (c *Client) Register(ctx context.Context) (Registration, error) {
	var last error
	said, begun := "", clock.Now()
	for backoff := firstBackoff; ; backoff = min(2*backoff, maxBackoff) {
		resp, err := c.control.do(ctx, c.registrationRequest(), requestWithin)
		if err == nil {
			r := resp.(*kmsg.BrokerRegistrationResponse)
			switch r.ErrorCode {
			case 0:
				return c.registered(r), nil
			case kerr.InconsistentClusterID.Code, kerr.InvalidRegistration.Code:
				return Registration{}, fmt.Errorf("%w: %w", ErrRejected, kerr.ErrorForCode(r.ErrorCode))
			}
			err = kerr.ErrorForCode(r.ErrorCode)
		}
		if ctx.Err() == nil || last == nil {
			said = c.sayNotRegistered(said, err, time.Since(begun))
			last = err
		}
		if err := c.pause(ctx, backoff); err != nil {
			return Registration{}, fmt.Errorf("register: %w: last attempt: %w", err, last)
		}
	}
}

// quietFor is how long there may be no active controller at a start before that is worth a line: an election takes its time.
const quietFor = 3 * time.Second

// sayNotRegistered logs why the broker is not registered yet, once for each reason, and returns what was said last.
func (c *Client) sayNotRegistered(said string, err error, after time.Duration) string {
	text := err.Error()
	switch {
	case said == text, errors.Is(err, kerr.NotController) && after < quietFor:
		return said
	case errors.Is(err, kerr.DuplicateBrokerRegistration):
		other := "unknown"
		if b := c.cfg.Store.Image().Brokers[c.cfg.NodeID]; b != nil && len(b.Endpoints) > 0 {
			other = net.JoinHostPort(b.Endpoints[0].Host, strconv.Itoa(int(b.Endpoints[0].Port)))
		}
		c.log.Error("another live process is registered with this node id: stop one of the two, or give it another node.id; trying until the registration times out",
			zap.Int32("nodeId", int32(c.cfg.NodeID)), zap.String("other", other), zap.String("this", c.ownEndpoint()))
	default:
		c.log.Info("registration with the controller not done yet", zap.Error(err))
	}
	return text
}

func (c *Client) ownEndpoint() string {
	if len(c.cfg.Endpoints) == 0 {
		return "unknown"
	}
	e := c.cfg.Endpoints[0]
	return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port)))
}

func (c *Client) registrationRequest() *kmsg.BrokerRegistrationRequest {
	req := kmsg.NewPtrBrokerRegistrationRequest()
	req.SetVersion(4)
	req.BrokerID, req.ClusterID = int32(c.cfg.NodeID), c.cfg.ClusterID
	req.IncarnationID, req.Rack = c.cfg.Incarnation, c.cfg.Rack
	req.LogDirs = [][16]byte{c.cfg.Directory}
	req.PreviousBrokerEpoch = c.cfg.PreviousEpoch
	for _, e := range c.cfg.Endpoints {
		l := kmsg.NewBrokerRegistrationRequestListener()
		l.Name, l.Host, l.Port, l.SecurityProtocol = e.Name, e.Host, e.Port, e.SecurityProtocol
		req.Listeners = append(req.Listeners, l)
	}
	req.UnknownTags.Set(tagLogFlush, []byte(c.cfg.LogFlush))
	req.UnknownTags.Set(tagBootID, []byte(c.cfg.BootID))
	setTagUint(&req.UnknownTags, tagOpenedNs, c.cfg.OpenedNs)
	return req
}

func (c *Client) registered(r *kmsg.BrokerRegistrationResponse) Registration {
	reg := Registration{
		ClusterID: tagText(&r.UnknownTags, tagClusterID), BrokerEpoch: r.BrokerEpoch,
		MetadataEnd:     tagUint(&r.UnknownTags, tagMetadataEnd),
		MetadataReplica: ids.ReplicaID(tagUint(&r.UnknownTags, tagMetadataReplica)),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.registration = reg
	return reg
}

// Registration returns what Register returned, zero before.
func (c *Client) Registration() Registration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.registration
}

// Start starts heartbeats, leader registrations and ISR changes, once, after Register.
func (c *Client) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started || c.registration.BrokerEpoch == 0 {
		panic("BUG: Start needs one Register before it")
	}
	c.started = true
	c.done.Go(c.heartbeats)
	c.done.Go(c.runLeaders)
	c.done.Go(c.runChanges)
}

// Close ends all that is under way and waits for it. Pending leader registrations end with ErrClosed.
func (c *Client) Close() {
	c.stop()
	c.lease.Store(0)
	c.control.close()
	c.data.close()
	c.admin.close()
	c.slow.close()
	c.done.Wait()
	c.producers.wait()
	c.leaders.fail(ErrClosed)
	c.changes.fail(ErrClosed)
}

// Failed is closed when the controller has rejected this process (Err tells why): it must stop.
func (c *Client) Failed() <-chan struct{} { return c.failed }

// Err returns why Failed is closed, nil while it is not.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failure
}

// Forward sends an admin request of a client on to the active controller, in its version, and tries again until the
// request's own timeout, if it has one, or ctx ends. An error means that the outcome is not known.
func (c *Client) Forward(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if t, ok := req.(kmsg.TimeoutRequest); ok && t.Timeout() > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(t.Timeout())*time.Millisecond)
		defer cancel()
	}
	return c.retry(ctx, c.admin, req)
}

// ForwardSlow is Forward for requests whose answer waits for something to happen in the cluster. They hold up each other
// alone. It tries another controller only when the connection to the present one ends, or the request's own timeout is over.
func (c *Client) ForwardSlow(ctx context.Context, req kmsg.Request, timeout time.Duration) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.retryWithin(ctx, c.slow, req, timeout)
}

// retry sends the request until a controller answers it as the active one.
func (c *Client) retry(ctx context.Context, ch *channel, req kmsg.Request) (kmsg.Response, error) {
	return c.retryWithin(ctx, ch, req, requestWithin)
}

// retryWithin is retry with another time for each attempt.
func (c *Client) retryWithin(ctx context.Context, ch *channel, req kmsg.Request, within time.Duration) (kmsg.Response, error) {
	var last error // of the last attempt that ctx did not cut short
	for {
		resp, err := ch.do(ctx, req, within)
		if err == nil {
			return resp, nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if err := c.pause(ctx, retryBackoff); err != nil {
			return nil, fmt.Errorf("%s: %w: last attempt: %w", kmsg.NameForKey(req.Key()), err, last)
		}
	}
}

// pause waits; it returns early with an error when ctx ends or the client is closed.
func (c *Client) pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ctx.Done():
		return ErrClosed
	}
}
