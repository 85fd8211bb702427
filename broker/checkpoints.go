package broker

import (
	"context"
	"errors"
	"time"

	"cairn/engine"

	"go.uber.org/zap"
)

// checkpointsEvery is how often the high watermarks of partitions that nobody writes to are stored, as far as they have changed: all in one
// commit. So a node that is killed knows later, and `cairn dump` shows, what it told its clients some seconds before.
const checkpointsEvery = time.Second

// runCheckpoints has the engine store what would otherwise wait for the next save, until ctx ends.
func (m *replicaManager) runCheckpoints(ctx context.Context) {
	ticker := time.NewTicker(checkpointsEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if _, err := m.cfg.Engine.CheckpointIdle(); err != nil && !errors.Is(err, engine.ErrClosed) {
			m.noise.error(m.cfg.Log, "high watermarks are not stored", zap.Error(err))
		}
	}
}
