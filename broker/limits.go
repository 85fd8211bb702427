package broker

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"cairn/internal/clock"
)

// errLimit refuses a connection.
var errLimit = errors.New("connection limit reached")

// connLimits counts client connections, in all and per client address.
type connLimits struct {
	mu    sync.Mutex
	total int            // guarded by mu
	perIP map[string]int // guarded by mu
	// bounds returns the limits in force: they are dynamic broker configs.
	bounds func() connBounds
}

// connBounds are max.connections, max.connections.per.ip and max.connections.per.ip.overrides.
type connBounds struct {
	total, perIP int
	overrides    map[string]int
}

func newConnLimits(bounds func() connBounds) *connLimits {
	return &connLimits{perIP: map[string]int{}, bounds: bounds}
}

// admit counts a connection from host, or says which limit it breaks. Every admitted one must leave.
func (l *connLimits) admit(host string) error {
	b := l.bounds()
	perIP := b.perIP
	if n, ok := b.overrides[host]; ok {
		perIP = n
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= b.total {
		return fmt.Errorf("%w: max.connections=%d", errLimit, b.total)
	}
	if l.perIP[host] >= perIP {
		return fmt.Errorf("%w: max.connections.per.ip=%d for %s", errLimit, perIP, host)
	}
	l.total++
	l.perIP[host]++
	return nil
}

func (l *connLimits) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.perIP[host]--; l.perIP[host] == 0 {
		delete(l.perIP, host)
	}
}

// logLimiter lets one line per kind and interval through, so that a hostile client cannot fill the log. What it held
// back is counted in the next line.
type logLimiter struct {
	interval time.Duration

	mu    sync.Mutex
	kinds map[string]*logBudget // guarded by mu; the kinds are constants in the code, so few
}

type logBudget struct {
	next       time.Time
	suppressed int
}

func newLogLimiter(interval time.Duration) *logLimiter {
	return &logLimiter{interval: interval, kinds: map[string]*logBudget{}}
}

// allow reports whether a line of this kind may be logged now, and how many were not since the last.
func (l *logLimiter) allow(kind string, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[kind]
	if k == nil {
		k = &logBudget{}
		l.kinds[kind] = k
	}
	if now.Before(k.next) {
		k.suppressed++
		return 0, false
	}
	suppressed, k.suppressed = k.suppressed, 0
	k.next = now.Add(l.interval)
	return suppressed, true
}

// warn logs at WARN, unless a line of the same kind came just before.
func (l *logLimiter) warn(log *zap.Logger, kind string, fields ...zap.Field) {
	l.log(log, zap.WarnLevel, kind, fields)
}

// error is warn at ERROR.
func (l *logLimiter) error(log *zap.Logger, kind string, fields ...zap.Field) {
	l.log(log, zap.ErrorLevel, kind, fields)
}

func (l *logLimiter) log(log *zap.Logger, level zapcore.Level, kind string, fields []zap.Field) {
	if n, ok := l.allow(kind, clock.Now()); ok {
		if n > 0 {
			fields = append(fields, zap.Int("suppressed", n))
		}
		log.Log(level, kind, fields...)
	}
}
