package broker

import (
	"time"

	"cairn/broker/controller"
	"cairn/broker/coordinator"
	"cairn/broker/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleConsumerGroupHeartbeat has a member of a consumer group join, stay or leave.
func handleConsumerGroupHeartbeat(b *Broker, r *request) {
	req := r.msg.(*kmsg.ConsumerGroupHeartbeatRequest)
	refused := func(code int16) *kmsg.ConsumerGroupHeartbeatResponse {
		resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
		resp.ErrorCode = code
		return resp
	}
	if b.images.Image().Feature(controller.GroupVersion) == 0 {
		r.reply(refused(kerr.UnsupportedVersion.Code))
		return
	}
	coordinate(b, r, req.Group, refused,
		func(m *group.Machine, now time.Time, fx *coordinator.Effects, reply group.Reply[*kmsg.ConsumerGroupHeartbeatResponse]) {
			m.ConsumerGroupHeartbeat(r.groupClient(), req, now, fx, reply)
		})
}
