package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"cairn/internal/clock"
	"cairn/internal/ids"
	"cairn/raftgroup"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// retryDelay is how long the Controller waits after a command of its own failed.
const retryDelay = 100 * time.Millisecond

// Controller is the metadata group's replica on a node with the controller role. It is active, and answers requests, from
// when its Claim of the present term was applied until its node no longer leads the group. Everybody else is answered
// NOT_CONTROLLER.
type Controller struct {
	cfg   Config
	store *Store
	log   *zap.Logger

	wake chan struct{} // a token: leadership, sessions or connections changed
	stop context.CancelFunc
	done sync.WaitGroup

	configs slot // one config change at a time: its values are computed from the present ones

	gathered gathering

	mu         sync.Mutex
	group      Group                   // guarded by mu; nil before Start
	closed     bool                    // guarded by mu
	leader     ids.ReplicaID           // guarded by mu; of the metadata group, as last heard
	term       ids.Term                // guarded by mu; of that leader
	activeTerm ids.Term                // guarded by mu; 0 when not active
	sessions   map[ids.NodeID]*session // guarded by mu; rebuilt when the node becomes active
	rng        *mathrand.Rand          // guarded by mu
	registers  map[ids.NodeID]slot     // guarded by mu; one registration of a broker at a time
}

// New returns a controller that answers NOT_CONTROLLER until Start.
func New(cfg Config, store *Store) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	cfg = cfg.withDefaults()
	seed := cfg.Seed
	if seed == 0 {
		seed = mathrand.Uint64()
	}
	return &Controller{
		cfg: cfg, store: store, log: cfg.Logger, wake: make(chan struct{}, 1), stop: func() {},
		sessions: map[ids.NodeID]*session{}, rng: mathrand.New(mathrand.NewPCG(seed, seed)),
		registers: map[ids.NodeID]slot{}, configs: newSlot(),
	}, nil
}

// Start lets the controller use the metadata group's replica. A node that is the only voter campaigns at once.
func (c *Controller) Start(group Group) {
	ctx, stop := context.WithCancel(context.Background())
	c.mu.Lock()
	closed := c.closed
	c.group, c.stop = group, stop
	c.mu.Unlock()
	if closed {
		stop()
		return
	}
	if len(c.cfg.Voters) == 1 {
		group.Campaign()
	}
	c.done.Go(func() { c.run(ctx) })
	c.done.Go(func() { c.runActions(ctx) })
}

// Close ends the controller's goroutine and waits for it. Requests are answered NOT_CONTROLLER from now on.
func (c *Controller) Close() {
	c.mu.Lock()
	c.closed, c.activeTerm = true, 0
	stop := c.stop
	c.mu.Unlock()
	stop()
	c.done.Wait()
}

// LeaderChanged tells who leads the metadata group, 0 for nobody. It does not block; it may be called before Start.
func (c *Controller) LeaderChanged(leader ids.ReplicaID, term ids.Term) {
	c.mu.Lock()
	c.leader, c.term = leader, term
	if c.activeTerm != 0 && (!c.leadsLocked() || term != c.activeTerm) {
		c.log.Info("no longer the active controller", zap.Uint64("term", uint64(c.activeTerm)))
		c.activeTerm = 0
	}
	c.mu.Unlock()
	put(c.wake)
}

// Active reports whether this node is the active controller.
func (c *Controller) Active() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.activeTerm != 0
}

func (c *Controller) leadsLocked() bool { return c.leader == VoterReplica(c.cfg.Node) }

// run claims the controller's role when this node leads, and fences brokers whose time is up.
func (c *Controller) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := clock.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-timer.C:
		}
		due = c.look(ctx, due)
		timer.Reset(time.Until(due))
	}
}

// look does what was due then, and returns when to look again. When it comes late, this process was stopped for as long as it is late, and one
// lookEvery at most before that: sessions go on for the former, and are much longer than the latter.
func (c *Controller) look(ctx context.Context, due time.Time) (next time.Time) {
	if late := time.Since(due); late > c.lookEvery() {
		c.forgive(late)
	}
	return clock.Now().Add(c.step(ctx))
}

// lookEvery is the time between two looks at the sessions, at most.
func (c *Controller) lookEvery() time.Duration { return c.cfg.SessionTimeout / 8 }

// step does what is due and returns when to look again.
func (c *Controller) step(ctx context.Context) time.Duration {
	c.mu.Lock()
	leads, term, active := c.leadsLocked(), c.term, c.activeTerm
	c.mu.Unlock()
	switch {
	case !leads:
		return time.Hour // LeaderChanged wakes
	case active != term:
		if err := c.claim(ctx, term); err != nil {
			c.log.Warn("cannot become the active controller yet", zap.Uint64("term", uint64(term)), zap.Error(err))
			return retryDelay
		}
	}
	wait, err := c.fenceExpired(ctx)
	if err != nil {
		c.log.Warn("cannot fence brokers yet", zap.Error(err))
		return retryDelay
	}
	return wait
}

// claim makes this node the active controller of the term. Once the claim is applied, so is everything before it, and
// commands of earlier terms that are still under way will be refused.
func (c *Controller) claim(ctx context.Context, term ids.Term) error {
	id := c.cfg.ClusterID
	if id == "" {
		id = newUUID().String()
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ProposeTimeout)
	defer cancel()
	res, err := c.proposeIn(ctx, term, Claim{c.cfg.Node, id})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || !c.leadsLocked() || c.term != term {
		return errNotActive
	}
	c.activeTerm = term
	c.resetSessionsLocked(clock.Now())
	c.log.Info("active controller", zap.Uint64("term", uint64(term)), zap.String("clusterId", res.ClusterID))
	return nil
}

// The errors of propose. An unknown outcome must not be answered as a failure.
var (
	errNotActive = errors.New("this node is not the active controller")
	errUnknown   = errors.New("the outcome is not known")
)

// propose commits a command in the term in which this node is active, and returns its result once it is applied here.
// Errors: errNotActive (it was not done), errUnknown.
func (c *Controller) propose(ctx context.Context, cmd Command) (Result, error) {
	c.mu.Lock()
	term := c.activeTerm
	c.mu.Unlock()
	if term == 0 {
		return Result{}, errNotActive
	}
	return c.proposeIn(ctx, term, cmd)
}

func (c *Controller) proposeIn(ctx context.Context, term ids.Term, cmd Command) (Result, error) {
	c.mu.Lock()
	group := c.group
	c.mu.Unlock()
	if group == nil {
		return Result{}, errNotActive
	}
	_, raw, err := group.Propose(ctx, EncodeCommand(Proposal{term, cmd}))
	switch {
	case errors.Is(err, raftgroup.ErrNotLeader), errors.Is(err, raftgroup.ErrClosed):
		return Result{}, fmt.Errorf("%w: %w", errNotActive, err)
	case err != nil:
		return Result{}, fmt.Errorf("%s: %w: %w", cmd.kind(), errUnknown, err)
	}
	res, err := DecodeResult(raw)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	if res.Code == kerr.NotController.Code {
		return Result{}, fmt.Errorf("%w: %s", errNotActive, res.Message)
	}
	return res, nil
}

// errorCode is the Kafka code for an error of propose.
func errorCode(err error) (int16, string) {
	if errors.Is(err, errNotActive) {
		return kerr.NotController.Code, "This node is not the active controller."
	}
	return kerr.RequestTimedOut.Code, "The controller did not learn in time whether the change was made."
}

// slot is a lock whose wait ends with a context.
type slot chan struct{}

func newSlot() slot { return make(slot, 1) }

func (s slot) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s slot) release() { <-s }

// newUUID returns a random id.
func newUUID() (u ids.UUID) {
	for u.IsZero() || u.String()[0] == '-' { // Kafka avoids ids that look like a flag
		rand.Read(u[:])
	}
	return u
}
