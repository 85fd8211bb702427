package broker

import (
	"time"

	"cairn/broker/controller"
	"cairn/broker/coordinator"
	"cairn/broker/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleConsumerGroupDescribe describes consumer groups. Each group has its own coordinator, so that they are asked for
// one by one.
func handleConsumerGroupDescribe(b *Broker, r *request) {
	req := r.msg.(*kmsg.ConsumerGroupDescribeRequest)
	if refuseTooMany(r, len(req.Groups)) {
		return
	}
	refused := func(id string, code int16) kmsg.ConsumerGroupDescribeResponseGroup {
		g := kmsg.NewConsumerGroupDescribeResponseGroup()
		g.Group, g.ErrorCode = id, code
		return g
	}
	all := gather(len(req.Groups), func(groups []kmsg.ConsumerGroupDescribeResponseGroup) {
		resp := kmsg.NewPtrConsumerGroupDescribeResponse()
		resp.Groups = groups
		r.reply(resp)
	})
	off := b.images.Image().Feature(controller.GroupVersion) == 0
	for i, id := range req.Groups {
		fail := func(err error) { all.put(i, refused(id, groupErrorCode(err))) }
		switch {
		case off:
			all.put(i, refused(id, kerr.UnsupportedVersion.Code))
			continue
		case id == "":
			all.put(i, refused(id, kerr.InvalidGroupID.Code))
			continue
		}
		b.groups.Do(id, func(m *group.Machine, now time.Time, fx *coordinator.Effects) {
			m.ConsumerGroupDescribe(id, now, fx, func(g *kmsg.ConsumerGroupDescribeResponseGroup, err error) {
				if err != nil {
					fail(err)
					return
				}
				if req.IncludeAuthorizedOperations {
					g.AuthorizedOperations = groupOperations
				}
				all.put(i, *g)
			})
		}, fail)
	}
}
