package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"cairn/internal/clock"
)

// Lease reports whether the broker may do client work: it is unfenced, as far as it knows, and the last heartbeat that
// was answered was sent less than the session timeout ago, by the monotonic clock. The controller counts from the arrival
// of that heartbeat or later, so a broker whose session is over refuses work before another takes its place.
func (c *Client) Lease() bool { return c.LeaseLeft() > 0 }

// LeaseLeft is for how long Lease still holds if no other heartbeat is answered; 0 or less: it does not hold.
func (c *Client) LeaseLeft() time.Duration { return time.Duration(c.lease.Load()) - time.Since(c.base) }

// Unfence asks the controller to unfence the broker, which it does when the metadata replica here has reached the
// registration, and waits until it has.
func (c *Client) Unfence(ctx context.Context) error {
	c.mu.Lock()
	c.wantFence = false
	c.mu.Unlock()
	return c.awaitStanding(ctx, func(s standing) bool { return s.unfenced })
}

// ControlledShutdown tells the controller that the broker is about to stop and waits until it leads nothing any more that
// another live broker could lead. Handing the leadership over is the broker's own work, meanwhile. The lease stays.
func (c *Client) ControlledShutdown(ctx context.Context) error {
	c.mu.Lock()
	c.wantShutdown = true
	c.mu.Unlock()
	return c.awaitStanding(ctx, func(s standing) bool { return s.mayStop })
}

func (c *Client) awaitStanding(ctx context.Context, ok func(standing) bool) error {
	put(c.beat)
	for {
		c.mu.Lock()
		s, changed, failure := c.standing, c.changed, c.failure
		c.mu.Unlock()
		switch {
		case failure != nil:
			return failure
		case ok(s):
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.ctx.Done():
			return ErrClosed
		}
	}
}

// heartbeats sends one heartbeat per interval, and one at once when the link breaks: the controller grants little time
// before it takes a broker without connection for dead.
func (c *Client) heartbeats() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var ends reportedEnds
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-timer.C:
		case <-c.beat:
		case <-c.control.broken():
		}
		sent := clock.Now()
		err := c.heartbeat(sent, &ends)
		if errors.Is(err, ErrRejected) {
			c.fail(err)
			return
		}
		wait := retryBackoff
		if err == nil {
			wait = time.Until(sent.Add(c.beatInterval()))
		} else if c.ctx.Err() == nil {
			c.log.Debug("heartbeat not answered", zap.Error(err))
		}
		timer.Reset(wait)
	}
}

// beatInterval is short while the controller's answer is awaited.
func (c *Client) beatInterval() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := !c.standing.unfenced && !c.wantFence || c.wantShutdown && !c.standing.mayStop
	if waiting {
		return min(eagerBeat, c.cfg.HeartbeatInterval)
	}
	return c.cfg.HeartbeatInterval
}

// heartbeat sends one and notes the answer. ErrRejected: this process is not the registered one any more.
func (c *Client) heartbeat(sent time.Time, ends *reportedEnds) error {
	req := kmsg.NewPtrBrokerHeartbeatRequest()
	req.SetVersion(1)
	c.mu.Lock()
	req.BrokerID, req.BrokerEpoch = int32(c.cfg.NodeID), c.registration.BrokerEpoch
	req.WantFence, req.WantShutdown = c.wantFence, c.wantShutdown
	c.mu.Unlock()
	req.CurrentMetadataOffset = int64(c.cfg.Store.Image().Index)
	if c.cfg.Ends != nil {
		ends.attach(req, c.cfg.Ends())
	}

	resp, err := c.control.do(c.ctx, req, c.cfg.SessionTimeout/3)
	if err != nil {
		return err
	}
	r := resp.(*kmsg.BrokerHeartbeatResponse)
	switch r.ErrorCode {
	case 0:
	case kerr.StaleBrokerEpoch.Code, kerr.BrokerIDNotRegistered.Code:
		return fmt.Errorf("%w: heartbeat of epoch %d: %w", ErrRejected, req.BrokerEpoch, kerr.ErrorForCode(r.ErrorCode))
	default:
		return kerr.ErrorForCode(r.ErrorCode)
	}
	ends.answered(r)
	c.answered(sent, r)
	return nil
}

// answered notes an answered heartbeat: the lease runs from when it was sent.
func (c *Client) answered(sent time.Time, r *kmsg.BrokerHeartbeatResponse) {
	until := int64(0)
	if !r.IsFenced {
		until = int64(sent.Add(c.cfg.SessionTimeout).Sub(c.base))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return
	}
	c.lease.Store(until)
	if was := c.standing.unfenced; was == r.IsFenced {
		c.log.Info("standing with the controller", zap.Bool("fenced", r.IsFenced))
		put(c.leaders.retry)
	}
	c.standing = standing{unfenced: !r.IsFenced, mayStop: r.ShouldShutdown}
	close(c.changed)
	c.changed = make(chan struct{})
}

// fail ends the client's work for good.
func (c *Client) fail(err error) {
	c.log.Error("rejected by the controller", zap.Error(err))
	c.lease.Store(0)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = err
	close(c.failed)
	close(c.changed)
	c.changed = make(chan struct{})
	c.stop()
}
