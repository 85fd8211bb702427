package broker

import (
	"sync"
	"time"
)

const (
	// stepFrom is how far the wall clock may be ahead of the time that has passed since the last look until that is a step.
	stepFrom = time.Minute
	// stepStands is how long a step has to stand until it is believed: as long as Kafka takes between two looks.
	stepStands = defaultRetentionCheck
)

// ageClock is the wall clock as deletion by age sees it. A step forwards, which makes all records old at once, is believed only when it has
// stood for a while: what it makes delete cannot be taken back, and the step may be. Any step back is believed at once. The zero value believes
// the first time that it is shown.
type ageClock struct {
	mu     sync.Mutex
	wallMs int64     // what was taken at the last look; guarded by mu
	at     time.Time // the last look; guarded by mu
	ahead  time.Time // the first look at a step that is not believed yet, zero: there is none; guarded by mu
}

// take looks at the clock, which shows now, and returns what to take the time for.
func (c *ageClock) take(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	shown, passed := now.UnixMilli(), c.wallMs+now.Sub(c.at).Milliseconds()
	first := c.at.IsZero()
	c.at = now
	switch {
	case first || shown-passed <= stepFrom.Milliseconds():
		c.ahead = time.Time{}
	case c.ahead.IsZero():
		c.ahead = now
	}
	if !c.ahead.IsZero() && now.Sub(c.ahead) < stepStands {
		c.wallMs = passed
	} else {
		c.wallMs, c.ahead = shown, time.Time{}
	}
	return time.UnixMilli(c.wallMs)
}
