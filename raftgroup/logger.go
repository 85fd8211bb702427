package raftgroup

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lni/dragonboat/v4/logger"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// dragonboat's logger factory is a process global that can be set once; so these are the package's only variables that change.
var (
	loggerOnce   sync.Once
	loggerTarget atomic.Pointer[zap.Logger]
)

// forwardLogs makes dragonboat log to l, from now on and for all hosts of the process.
func forwardLogs(l *zap.Logger) {
	loggerTarget.Store(l.WithOptions(zap.AddCallerSkip(2)))
	loggerOnce.Do(func() {
		logger.SetLoggerFactory(func(pkg string) logger.ILogger { return raftLogger{pkg: pkg} })
	})
}

// raftLogger passes errors on as warnings and warnings as debug lines: elections, dropped messages and unreachable peers are ordinary
// there, and what matters of them is reported by this package's callers. The rest is dropped before it is formatted.
type raftLogger struct{ pkg string }

// SetLevel implements logger.ILogger; the target decides.
func (raftLogger) SetLevel(logger.LogLevel) {}

// Debugf implements logger.ILogger.
func (raftLogger) Debugf(string, ...any) {}

// Infof implements logger.ILogger.
func (raftLogger) Infof(string, ...any) {}

// Warningf implements logger.ILogger.
func (r raftLogger) Warningf(format string, args ...any) { r.log(zap.DebugLevel, format, args) }

// Errorf implements logger.ILogger.
func (r raftLogger) Errorf(format string, args ...any) { r.log(zap.WarnLevel, format, args) }

// Panicf implements logger.ILogger.
func (r raftLogger) Panicf(format string, args ...any) {
	r.log(zap.ErrorLevel, format, args)
	panic("raft: " + fmt.Sprintf(format, args...))
}

func (r raftLogger) log(level zapcore.Level, format string, args []any) {
	if e := loggerTarget.Load().Check(level, ""); e != nil {
		e.Message = fmt.Sprintf(format, args...)
		e.Write(zap.String("raft", r.pkg))
	}
}
