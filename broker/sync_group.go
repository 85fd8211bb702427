package broker

import (
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleSyncGroup brings and fetches an assignment. The answer waits for the leader's.
func handleSyncGroup(b *Broker, r *request) {
	req, client := r.msg.(*kmsg.SyncGroupRequest), r.groupClient()
	refused := func(code int16) *kmsg.SyncGroupResponse {
		resp := kmsg.NewPtrSyncGroupResponse()
		resp.ErrorCode = code
		return resp
	}
	if req.Group == "" {
		r.reply(refused(kerr.InvalidGroupID.Code))
		return
	}
	coordinate(b, r, req.Group, refused, func(m *group.Machine, now time.Time, fx *coordinator.Effects, reply group.Reply[*kmsg.SyncGroupResponse]) {
		m.SyncGroup(client, req, now, fx, reply)
	})
}
