package broker

import (
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleHeartbeat keeps a member of a classic group.
func handleHeartbeat(b *Broker, r *request) {
	req, client := r.msg.(*kmsg.HeartbeatRequest), r.groupClient()
	refused := func(code int16) *kmsg.HeartbeatResponse {
		resp := kmsg.NewPtrHeartbeatResponse()
		resp.ErrorCode = code
		return resp
	}
	if req.Group == "" {
		r.reply(refused(kerr.InvalidGroupID.Code))
		return
	}
	coordinate(b, r, req.Group, refused, func(m *group.Machine, now time.Time, fx *coordinator.Effects, reply group.Reply[*kmsg.HeartbeatResponse]) {
		m.Heartbeat(client, req, now, fx, reply)
	})
}
