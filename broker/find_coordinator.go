package broker

import (
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// coordinatorTypeMax is the largest coordinator type that Kafka knows: 0 groups, 1 transactions, 2 share groups.
const coordinatorTypeMax = 2

// handleFindCoordinator says that there is no coordinator: this version has neither groups nor transactions. Clients
// that need one keep asking, those that do not are not disturbed.
func handleFindCoordinator(_ *Broker, r *request) {
	req := r.msg.(*kmsg.FindCoordinatorRequest)
	code, message := kerr.CoordinatorNotAvailable.Code, "This version has no group and no transaction coordinator."
	if req.CoordinatorType < 0 || req.CoordinatorType > coordinatorTypeMax {
		code, message = kerr.InvalidRequest.Code, "Unknown coordinator type."
	}
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.NodeID, resp.Port = int32(ids.NoNode), -1
	if req.Version < 4 {
		resp.ErrorCode, resp.ErrorMessage = code, &message
		r.reply(resp)
		return
	}
	for _, key := range req.CoordinatorKeys {
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Port, c.ErrorCode, c.ErrorMessage = key, int32(ids.NoNode), -1, code, &message
		resp.Coordinators = append(resp.Coordinators, c)
	}
	r.reply(resp)
}
