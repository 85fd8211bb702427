package broker

import (
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleJoinGroup lets a member into a group. The answer waits until the others have come.
func handleJoinGroup(b *Broker, r *request) {
	req, client := r.msg.(*kmsg.JoinGroupRequest), r.groupClient()
	refused := func(code int16) *kmsg.JoinGroupResponse {
		resp := kmsg.NewPtrJoinGroupResponse()
		resp.ErrorCode, resp.MemberID, resp.Generation = code, req.MemberID, -1
		return resp
	}
	if req.Group == "" {
		r.reply(refused(kerr.InvalidGroupID.Code))
		return
	}
	coordinate(b, r, req.Group, refused, func(m *group.Machine, now time.Time, fx *coordinator.Effects, reply group.Reply[*kmsg.JoinGroupResponse]) {
		m.JoinGroup(client, req, now, fx, reply)
	})
}
