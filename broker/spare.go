package broker

import (
	"sync/atomic"
	"time"
)

const (
	// quietRate is how many bytes a second clients may produce for catching up to be without a limit of its own.
	quietRate = 256 << 10
	// catchUpMin is the least that one broker gets to catch up, bytes a second.
	catchUpMin = 4 << 20
	// catchUpShare is the least that one broker gets whose replica is to be in sync again, as a multiple of what clients produce here: less than
	// one would never catch up, and the partition lacks a replica. One that is added by a reassignment can wait.
	catchUpShare = 1.5

	// spareWindow is the time for which a rate is tried.
	spareWindow = time.Second
	// spareCycle is how many windows pass from one at the least rate to the next.
	spareCycle = 8
	// spareForget is when what is known of clients is too old to compare with.
	spareForget = 10 * time.Second
	// spareGrowth is by how much the rate grows after a window that clients did not feel.
	spareGrowth = 1.5
	// spareMax bounds the rate, bytes a second.
	spareMax = 1 << 30
	// meanWeight is what the last window counts in the mean of what clients produce.
	meanWeight = 0.25

	// Clients feel it when they produce less than feltShare of what they did at the least rate, or wait for an answer feltWait times as long
	// and feltSlack more.
	feltShare = 0.85
	feltWait  = 1.25
	feltSlack = time.Millisecond
)

// fare is how clients that produce did in some time.
type fare struct {
	bytes float64       // a second
	wait  time.Duration // from a request's arrival to its answer, the mean; 0: none was answered
}

// feel reports whether clients are worse off than usual.
func (f fare) feel(usual fare) bool {
	return f.bytes < feltShare*usual.bytes || usual.wait > 0 && float64(f.wait) > feltWait*float64(usual.wait)+float64(feltSlack)
}

// spare finds what clients leave to replicas that catch up, by trying: a second at the least rate shows how clients do then, and in the
// next seven the rate grows as long as they do as well, and is halved when they do not. Beside clients that take all there is it so stays
// near the least rate, and beside all others it becomes what disk and network give.
type spare struct {
	produced atomic.Int64 // bytes that were proposed
	answers  atomic.Int64 // produce requests that were answered
	waited   atomic.Int64 // nanoseconds from arrival to answer, of all of them

	// The window, and what is known from those before. All guarded by throttle.mu.
	begun   time.Time
	before  [3]int64 // of the counters above, when it began
	number  int      // of the window; those divisible by spareCycle are at the least rate
	given   int64    // bytes sent in it
	clients float64  // bytes a second that clients produced in the last one
	mean    float64  // the same, of some windows: what catching up takes must not follow its own effect at once
	usual   fare     // in the last one at the least rate
	rate    float64  // that is tried in the others, for each broker
}

// answered notes a produce request that took so long.
func (s *spare) answered(took time.Duration) {
	s.answers.Add(1)
	s.waited.Add(int64(took))
}

// measure looks how clients did, once the window is over, and begins the next one.
func (s *spare) measure(now time.Time) {
	took := now.Sub(s.begun)
	if took < spareWindow {
		return
	}
	f := s.fare(took)
	switch {
	case took > spareForget: // the first one, too
		s.number, s.rate, s.mean = 0, 0, f.bytes
	case s.number%spareCycle == 0:
		s.usual = f
		s.number++
	default:
		s.adapt(f, float64(s.given)/took.Seconds())
		s.number++
	}
	s.clients = f.bytes
	s.mean += (f.bytes - s.mean) * meanWeight
	s.begun, s.given = now, 0
}

// fare reads the counters of the window that ends.
func (s *spare) fare(took time.Duration) (f fare) {
	now := [3]int64{s.produced.Load(), s.answers.Load(), s.waited.Load()}
	f.bytes = float64(now[0]-s.before[0]) / took.Seconds()
	if n := now[1] - s.before[1]; n > 0 {
		f.wait = time.Duration((now[2] - s.before[2]) / n)
	}
	s.before = now
	return f
}

// adapt changes the rate after a window in which it was tried; used is what all brokers took of it, bytes a second.
func (s *spare) adapt(f fare, used float64) {
	rate := s.allowed(true)
	switch {
	case f.feel(s.usual):
		s.rate = rate / 2
	case used >= rate/2:
		s.rate = min(rate*spareGrowth, spareMax)
	}
}

// allowed is what one broker gets in this window, bytes a second; added: for a replica that a reassignment adds.
func (s *spare) allowed(added bool) float64 {
	least := float64(catchUpMin)
	if !added {
		least = max(least, catchUpShare*s.mean)
	}
	if s.number%spareCycle == 0 {
		return least
	}
	return max(least, s.rate)
}
