package broker

import (
	"context"
	"errors"
	"time"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/ids"
	"cairn/wire/private"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// handleElectLeaders has the active controller hold the elections, and waits until this broker's own metadata shows them.
func handleElectLeaders(b *Broker, r *request) {
	req := r.msg.(*kmsg.ElectLeadersRequest)
	timeout := forwardTimeout
	if req.TimeoutMillis > 0 {
		timeout = time.Duration(req.TimeoutMillis) * time.Millisecond
	}
	answer, err := b.ctl.ForwardSlow(r.conn.context, req, timeout)
	if err != nil {
		b.noise.warn(b.log, "elections: no answer from the controller", zap.Error(err))
		r.reply(unknownElections(b.images.Image(), req))
		return
	}
	resp := answer.(*kmsg.ElectLeadersResponse)
	b.awaitElected(r.conn.context, req, resp)
	r.reply(resp)
}

// unknownElections says of each partition asked for that the outcome is not known.
func unknownElections(img *controller.Image, req *kmsg.ElectLeadersRequest) *kmsg.ElectLeadersResponse {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	add := func(topic string, partitions []int32) {
		t := kmsg.NewElectLeadersResponseTopic()
		t.Topic = topic
		for _, i := range partitions {
			p := kmsg.NewElectLeadersResponseTopicPartition()
			p.Partition, p.ErrorCode = i, kerr.RequestTimedOut.Code
			p.ErrorMessage = kmsg.StringPtr("No answer from the controller: the election may have been held.")
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	if req.Topics == nil {
		for _, t := range img.TopicList() {
			all := make([]int32, len(t.Partitions))
			for i := range all {
				all[i] = int32(i)
			}
			add(t.Name, all)
		}
	}
	for _, t := range req.Topics {
		add(t.Topic, t.Partitions)
	}
	return resp
}

// awaitElected waits until the new leaders are in this broker's metadata, for a moment: clients ask for them next.
func (b *Broker) awaitElected(ctx context.Context, req *kmsg.ElectLeadersRequest, resp *kmsg.ElectLeadersResponse) {
	preferred := req.Version == 0 || controller.ElectionType(req.ElectionType) == controller.PreferredElection
	b.awaitImage(ctx, func(img *controller.Image) bool {
		for _, t := range resp.Topics {
			for _, rp := range t.Partitions {
				p, ok := img.Partition(t.Topic, rp.Partition)
				if rp.ErrorCode != 0 || !ok {
					continue
				}
				if leader := img.Leader(p); leader == ids.NoNode || preferred && leader != p.Replicas[0] {
					return false
				}
			}
		}
		return true
	})
}

// previewTimeout bounds the wait for the controller's answer to a dry run, which it gives within a fraction of a second.
const previewTimeout = 5 * time.Second

// handlePreviewElections has the active controller tell what an election would lose.
func handlePreviewElections(b *Broker, r *request) {
	answer, err := b.ctl.ForwardSlow(r.conn.context, r.msg, previewTimeout)
	if err != nil {
		answer = &private.ElectionsResponse{Body: private.ElectionAnswer{Status: private.Status{
			Code: kerr.RequestTimedOut.Code, Message: "No answer from the controller: " + err.Error(),
		}}}
	}
	r.reply(answer)
}

// handleDescribeReplicas tells how far replicas here reach, those included that wait for a leader to join. A replica that has
// nothing yet ends at 0.
func handleDescribeReplicas(b *Broker, r *request) {
	req := r.msg.(*private.ReplicasRequest)
	resp := &private.ReplicasResponse{}
	for _, id := range req.Body.Partitions {
		end, start := engine.LogEnd{LeaderEpoch: ids.NoEpoch, AppendMs: -1}, ids.Offset(0)
		switch log, err := b.engine.OpenLog(id); {
		case err == nil:
			end, start = log.LogEnd(), log.Start()
		case !errors.Is(err, engine.ErrNoPartition):
			b.noise.warn(b.log, "log end cannot be read", zap.Uint64("partitionId", uint64(id)), zap.Error(err))
			continue
		}
		resp.Body.Replicas = append(resp.Body.Replicas, private.ReplicaEnd{
			Partition: id, Start: start, End: end.End, LeaderEpoch: end.LeaderEpoch, AppendMs: end.AppendMs,
		})
	}
	r.reply(resp)
}

// logEnds tells how far the replicas here reach, for the heartbeats.
func (m *replicaManager) logEnds() []controller.PartitionEnd {
	ps := m.partitions()
	ends := make([]controller.PartitionEnd, 0, len(ps))
	for _, p := range ps {
		end := p.log().LogEnd()
		ends = append(ends, controller.PartitionEnd{
			Partition: p.id, LogEnd: controller.LogEnd{LeaderEpoch: end.LeaderEpoch, End: end.End, AppendMs: end.AppendMs},
		})
	}
	return ends
}
