package broker

import (
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleOffsetDelete deletes committed offsets of partitions that exist.
func handleOffsetDelete(b *Broker, r *request) {
	req := r.msg.(*kmsg.OffsetDeleteRequest)
	img := b.images.Image()
	var unknown []kmsg.OffsetDeleteResponseTopic
	var taken []kmsg.OffsetDeleteRequestTopic
	for _, t := range req.Topics {
		known, missing := kmsg.NewOffsetDeleteRequestTopic(), kmsg.NewOffsetDeleteResponseTopic()
		known.Topic, missing.Topic = t.Topic, t.Topic
		for _, p := range t.Partitions {
			if hasPartition(img.Topics[t.Topic], p.Partition) {
				known.Partitions = append(known.Partitions, p)
				continue
			}
			rp := kmsg.NewOffsetDeleteResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, kerr.UnknownTopicOrPartition.Code
			missing.Partitions = append(missing.Partitions, rp)
		}
		if len(known.Partitions) > 0 {
			taken = append(taken, known)
		}
		if len(missing.Partitions) > 0 {
			unknown = append(unknown, missing)
		}
	}
	req.Topics = taken
	refused := func(code int16) *kmsg.OffsetDeleteResponse {
		resp := kmsg.NewPtrOffsetDeleteResponse()
		resp.ErrorCode = code
		return resp
	}
	coordinate(b, r, req.Group, refused, func(m *group.Machine, now time.Time, fx *coordinator.Effects, reply group.Reply[*kmsg.OffsetDeleteResponse]) {
		m.OffsetDelete(req, now, fx, func(resp *kmsg.OffsetDeleteResponse, err error) {
			if err == nil && resp.ErrorCode == 0 {
				resp.Topics = append(resp.Topics, unknown...)
			}
			reply(resp, err)
		})
	})
}
