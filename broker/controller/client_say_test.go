package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestWhatIsSaidWhileABrokerIsNotRegistered(t *testing.T) {
	core, logged := observer.New(zapcore.DebugLevel)
	store := NewStore()
	img := NewImage()
	img.Brokers[7] = &Broker{ID: 7, Endpoints: []Endpoint{{Host: "there", Port: 1}}}
	store.publish(img)
	c := &Client{cfg: ClientConfig{NodeID: ids.NodeID(7), Endpoints: []Endpoint{{Host: "here", Port: 2}}, Store: store}, log: zap.New(core)}
	said := ""
	for _, step := range []struct {
		name  string
		err   error
		after time.Duration
		level zapcore.Level
		lines int
	}{
		{"an election takes its time", fmt.Errorf("%w: %w", errTryNext, kerr.NotController), time.Second, 0, 0},
		{"it takes long", fmt.Errorf("%w: %w", errTryNext, kerr.NotController), quietFor, zapcore.InfoLevel, 1},
		{"the same again", fmt.Errorf("%w: %w", errTryNext, kerr.NotController), 2 * quietFor, 0, 0},
		{"nobody there", errors.New("refused"), 0, zapcore.InfoLevel, 1},
		{"the id is taken", kerr.DuplicateBrokerRegistration, 0, zapcore.ErrorLevel, 1},
	} {
		said = c.sayNotRegistered(said, step.err, step.after)
		got := logged.TakeAll()
		if len(got) != step.lines || step.lines > 0 && got[0].Level != step.level {
			t.Errorf("%s: %v", step.name, got)
		}
		if step.level == zapcore.ErrorLevel && (got[0].ContextMap()["other"] != "there:1" || got[0].ContextMap()["this"] != "here:2") {
			t.Errorf("%s: names %v", step.name, got[0].ContextMap())
		}
	}
}
