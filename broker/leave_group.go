package broker

import (
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleLeaveGroup takes members out of a group.
func handleLeaveGroup(b *Broker, r *request) {
	req, client := r.msg.(*kmsg.LeaveGroupRequest), r.groupClient()
	refused := func(code int16) *kmsg.LeaveGroupResponse {
		resp := kmsg.NewPtrLeaveGroupResponse()
		resp.ErrorCode = code
		return resp
	}
	if req.Group == "" {
		r.reply(refused(kerr.InvalidGroupID.Code))
		return
	}
	coordinate(b, r, req.Group, refused, func(m *group.Machine, now time.Time, fx *coordinator.Effects, reply group.Reply[*kmsg.LeaveGroupResponse]) {
		m.LeaveGroup(client, req, now, fx, reply)
	})
}
