package broker

import (
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// heartbeatRefusal answers with an error, but while the coordinator loads with none, as Kafka does: what the member is to do is known once the group
// is, its session begins anew then, and there are clients that do not expect COORDINATOR_LOAD_IN_PROGRESS here.
func heartbeatRefusal(code int16) *kmsg.HeartbeatResponse {
	resp := kmsg.NewPtrHeartbeatResponse()
	if code != kerr.CoordinatorLoadInProgress.Code {
		resp.ErrorCode = code
	}
	return resp
}

// handleHeartbeat keeps a member of a classic group.
func handleHeartbeat(b *Broker, r *request) {
	req, client := r.msg.(*kmsg.HeartbeatRequest), r.groupClient()
	if req.Group == "" {
		r.reply(heartbeatRefusal(kerr.InvalidGroupID.Code))
		return
	}
	coordinate(b, r, req.Group, heartbeatRefusal, func(m *group.Machine, now time.Time, fx *coordinator.Effects, reply group.Reply[*kmsg.HeartbeatResponse]) {
		m.Heartbeat(client, req, now, fx, reply)
	})
}
