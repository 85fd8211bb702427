package raftgroup

import (
	"github.com/lni/dragonboat/v4/raftpb"

	"cairn/engine"
	"cairn/internal/ids"
)

// A follower whose disk is nearly full takes no more of the log: to its leader it is a member that does not answer, which is asked again
// with each heartbeat. Entries without records still come through, since new log starts are among them, and so does the metadata, which
// tells of deleted topics, as long as there is any room.

// hasRoom reports whether the entries of a message may be saved here.
func (h *Host) hasRoom(m *raftpb.Message) bool {
	level := h.cfg.Engine.SpaceLevel()
	if level < engine.SpaceShort {
		return true
	}
	if ids.ShardID(m.ShardID) == ids.MetadataShard {
		return level < engine.SpaceOut
	}
	for i := range m.Entries {
		if e := &m.Entries[i]; e.Type != raftpb.ConfigChangeEntry && engine.CarriesBatch(e.Cmd) {
			return false
		}
	}
	return true
}
