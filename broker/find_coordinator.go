package broker

import (
	"context"

	"cairn/broker/controller"
	"cairn/broker/coordinator"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The coordinator types of FindCoordinator.
const (
	groupCoordinator       = 0
	transactionCoordinator = 1
	shareCoordinator       = 2
)

// findCoordinatorBatch is the first version that asks for several keys.
const findCoordinatorBatch = 4

// handleFindCoordinator answers who leads the partitions of the internal topic that the keys hash to. The topic is created at
// the first question for it.
func handleFindCoordinator(b *Broker, r *request) {
	req := r.msg.(*kmsg.FindCoordinatorRequest)
	resp := kmsg.NewPtrFindCoordinatorResponse()
	topic, refusal := b.topicOfCoordinators(r.conn.context, req.CoordinatorType)
	keys := req.CoordinatorKeys
	if req.Version < findCoordinatorBatch {
		keys = []string{req.CoordinatorKey}
	}
	if refuseTooMany(r, len(keys)) {
		return
	}
	for _, key := range keys {
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Port = key, int32(ids.NoNode), -1
		if refusal.Code != 0 {
			c.ErrorCode, c.ErrorMessage = refusal.Code, &refusal.Message
		} else {
			b.locateCoordinator(topic, r.listenerName(), &c)
		}
		resp.Coordinators = append(resp.Coordinators, c)
	}
	if req.Version < findCoordinatorBatch {
		c := &resp.Coordinators[0]
		resp.ErrorCode, resp.ErrorMessage, resp.NodeID, resp.Host, resp.Port = c.ErrorCode, c.ErrorMessage, c.NodeID, c.Host, c.Port
		resp.Coordinators = nil
	}
	r.reply(resp)
}

// topicOfCoordinators is the topic behind a type of coordinators; nil without a refusal: it is being created.
func (b *Broker) topicOfCoordinators(ctx context.Context, kind int8) (*controller.Topic, controller.ItemResult) {
	name := ""
	switch kind {
	case groupCoordinator:
		name = offsetsTopic
	case transactionCoordinator:
		name = transactionsTopic
	case shareCoordinator:
		return nil, controller.ItemResult{Code: kerr.InvalidRequest.Code, Message: "There are no share groups here."}
	default:
		return nil, controller.ItemResult{Code: kerr.InvalidRequest.Code, Message: "Unknown coordinator type."}
	}
	return b.ensureInternalTopic(ctx, name), controller.ItemResult{}
}

// locateCoordinator fills in the coordinator of c.Key.
func (b *Broker) locateCoordinator(topic *controller.Topic, listener string, c *kmsg.FindCoordinatorResponseCoordinator) {
	partitions := int32(0)
	if topic != nil {
		partitions = int32(len(topic.Partitions))
	}
	node, host, port, ok := b.coordinatorOf(topic, coordinator.PartitionOf(c.Key, partitions), listener)
	if !ok {
		c.ErrorCode = kerr.CoordinatorNotAvailable.Code
		c.ErrorMessage = kmsg.StringPtr("The coordinator is not available: its partition is being created, or has no leader.")
		return
	}
	c.NodeID, c.Host, c.Port = int32(node), host, port
}
