package broker

import (
	"errors"
	"fmt"
	"time"

	"cairn/engine"

	"go.uber.org/zap"
)

// errDiskFull refuses records while there is too little room on the disk. Clients try again on its code, KAFKA_STORAGE_ERROR, until their
// own time is over, and look for another leader meanwhile.
var errDiskFull = errors.New("the disk is nearly full")

// spaceCheck is the time between two looks at the room on the disk. Saves look by themselves when they use up much.
const spaceCheck = 100 * time.Millisecond

// watchSpace keeps the engine's view of the room on the disk up to date until the node stops.
func (n *Node) watchSpace() {
	ticker := time.NewTicker(spaceCheck)
	defer ticker.Stop()
	for {
		n.engine.CheckSpace()
		select {
		case <-ticker.C:
		case <-n.ctx.Done():
			return
		}
	}
}

// reclaimCheck is the time between two looks whether something was deleted that the store is to give the room of back.
const reclaimCheck = 500 * time.Millisecond

// reclaimSpace has the store make room where there is too little and something was deleted, until the node stops.
func (n *Node) reclaimSpace() {
	ticker := time.NewTicker(reclaimCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-n.ctx.Done():
			return
		}
		if err := n.engine.Reclaim(n.ctx); err != nil && n.ctx.Err() == nil {
			n.log.Warn("no room is made on the disk", zap.Error(err))
		}
	}
}

// checkRoom refuses records: those of clients, and at a lower level those of this broker itself, without which nobody could read by groups.
func (m *replicaManager) checkRoom(own bool) error {
	limit := engine.SpaceLow
	if own {
		limit = engine.SpaceShort
	}
	if m.cfg.Engine.SpaceLevel() < limit {
		return nil
	}
	s := m.cfg.Engine.Space()
	return fmt.Errorf("%w: broker %d has %d bytes free, log.min.free.bytes=%d", errDiskFull, m.cfg.NodeID, s.Free, s.MinFree)
}
