package broker

import (
	"maps"
	"slices"

	"cairn/broker/topicconfig"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleDescribeQuorum has the active controller tell about the metadata log's replicas, and adds where the controllers are.
func handleDescribeQuorum(b *Broker, r *request) {
	req := r.msg.(*kmsg.DescribeQuorumRequest)
	var resp *kmsg.DescribeQuorumResponse
	if r.conn.listener.controller {
		resp = b.askQuorum(r).(*kmsg.DescribeQuorumResponse)
	} else {
		resp = b.forward(r.conn.context, req).(*kmsg.DescribeQuorumResponse)
	}
	if resp.ErrorCode == 0 {
		resp.Nodes = b.quorumNodes()
	}
	r.reply(resp)
}

// quorumNodes are controller.quorum.voters with their addresses; the only voter may have none.
func (b *Broker) quorumNodes() []kmsg.DescribeQuorumResponseNode {
	var nodes []kmsg.DescribeQuorumResponseNode
	addresses := b.controllers()
	for _, id := range slices.Sorted(maps.Keys(b.cfg.Voters)) {
		n := kmsg.NewDescribeQuorumResponseNode()
		n.NodeID = int32(id)
		for _, c := range addresses {
			if c.NodeID == n.NodeID {
				l := kmsg.NewDescribeQuorumResponseNodeListener()
				l.Name, l.Host, l.Port = b.controllerListener(), c.Host, uint16(c.Port)
				n.Listeners = append(n.Listeners, l)
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// controllerListener is the first name of controller.listener.names.
func (b *Broker) controllerListener() string {
	for _, name := range topicconfig.SplitList(valueReader{b.cfg.values}.text("controller.listener.names")) {
		return name
	}
	return "CONTROLLER"
}
