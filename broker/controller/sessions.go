package controller

import (
	"context"
	"time"

	"cairn/internal/clock"
	"cairn/internal/ids"

	"go.uber.org/zap"
)

// session is what the active controller knows of one registration of a broker: when it was last heard, and whether it
// still has a control connection. Guarded by Controller.mu.
type session struct {
	node  ids.NodeID
	epoch int64
	heard time.Time
	// leased is when the last heartbeat came that was answered as one of an unfenced broker: its lease is no younger. At most
	// heard; of an earlier process of the broker if this one was never answered so.
	leased time.Time
	conns  int
	// lost is when the last of its connections went away; zero while it has one, and before it ever had.
	lost time.Time
}

// deadline is when the broker is to be fenced. One that said it shuts down is given no grace for its connection.
func (s *session) deadline(cfg Config, b *Broker) time.Time {
	d := s.heard.Add(cfg.SessionTimeout)
	if s.lost.IsZero() {
		return d
	}
	grace := s.lost.Add(cfg.ConnectionGrace)
	if b.ShuttingDown {
		grace = s.lost
	}
	if grace.Before(d) {
		return grace
	}
	return d
}

// alive reports whether the broker's process may still be there, for all this controller knows.
func (s *session) alive(cfg Config, now time.Time) bool {
	return s.lost.IsZero() && now.Before(s.heard.Add(cfg.SessionTimeout))
}

// resetSessionsLocked gives every registered broker a full session from now.
func (c *Controller) resetSessionsLocked(now time.Time) {
	c.sessions = map[ids.NodeID]*session{}
	for id, b := range c.store.Image().Brokers {
		c.sessions[id] = &session{node: id, epoch: b.Epoch, heard: now, leased: now}
	}
}

// forgive prolongs all sessions by the time that this process was stopped for: brokers could not be heard then. Fencing
// later than announced is safe, see Client.Lease.
func (c *Controller) forgive(stopped time.Duration) {
	c.log.Warn("this process was stopped; broker sessions go on for as long", zap.Duration("stopped", stopped))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessions {
		s.heard, s.leased = s.heard.Add(stopped), s.leased.Add(stopped)
		if !s.lost.IsZero() {
			s.lost = s.lost.Add(stopped)
		}
	}
}

// touch notes that the broker was heard of over the connection.
func (c *Controller) touch(cc *Conn, node ids.NodeID, epoch int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, now := c.sessions[node], clock.Now()
	if s == nil || s.epoch != epoch {
		leased := now // nothing is known of it
		if s != nil {
			leased = s.leased
		}
		s = &session{node: node, epoch: epoch, leased: leased}
		c.sessions[node] = s
	}
	s.heard = now
	if cc.session == s || cc.closed {
		return
	}
	c.unbindLocked(cc)
	cc.session = s
	s.conns++
	s.lost = time.Time{}
}

// lease notes that a heartbeat of the broker, touched before, is answered as one of an unfenced broker.
func (c *Controller) lease(node ids.NodeID, epoch int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sessions[node]; s != nil && s.epoch == epoch {
		s.leased = s.heard
	}
}

// unbindLocked takes the connection away from its session.
func (c *Controller) unbindLocked(cc *Conn) {
	s := cc.session
	if s == nil {
		return
	}
	cc.session = nil
	if s.conns--; s.conns == 0 {
		s.lost = clock.Now()
		put(c.wake)
	}
}

// fenceExpired fences the unfenced brokers whose time is up, in one command, and returns how long the next one has.
func (c *Controller) fenceExpired(ctx context.Context) (time.Duration, error) {
	var changes []BrokerChange
	now := clock.Now()
	wait := c.lookEvery()
	c.mu.Lock()
	for _, b := range c.store.Image().BrokerList() {
		if b.Fenced {
			continue
		}
		s := c.sessions[b.ID]
		if s == nil || s.epoch != b.Epoch {
			s = &session{node: b.ID, epoch: b.Epoch, heard: now, leased: now}
			c.sessions[b.ID] = s
		}
		if left := s.deadline(c.cfg, b).Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		c.log.Info("fencing broker", zap.Int32("broker", int32(b.ID)), zap.Duration("silentFor", now.Sub(s.heard)),
			zap.Bool("connected", s.lost.IsZero()))
		changes = append(changes, BrokerChange{b.ID, b.Epoch, Fence})
	}
	c.mu.Unlock()
	if len(changes) == 0 {
		return wait, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ProposeTimeout)
	defer cancel()
	c.saveEnds(ctx, changes)
	_, err := c.propose(ctx, ChangeBrokers{changes})
	return wait, err
}
