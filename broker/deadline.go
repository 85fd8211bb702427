package broker

import (
	"context"
	"time"
)

// deadlineContext is a context with a deadline that costs nothing until something waits on it, which on the produce
// path is the exception. For one goroutine.
type deadlineContext struct {
	context.Context
	deadline time.Time
	timed    context.Context
	cancel   context.CancelFunc
}

func (c *deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *deadlineContext) Done() <-chan struct{} {
	if c.timed == nil {
		c.timed, c.cancel = context.WithDeadline(c.Context, c.deadline)
	}
	return c.timed.Done()
}

func (c *deadlineContext) Err() error {
	if c.timed != nil {
		return c.timed.Err()
	}
	return c.Context.Err()
}

func (c *deadlineContext) stop() {
	if c.cancel != nil {
		c.cancel()
	}
}
