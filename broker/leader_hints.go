package broker

import (
	"slices"

	"cairn/broker/controller"
	"cairn/internal/ids"
	"cairn/wire"
)

// leaderHints collects, for one response, who leads the partitions that are not led here, and where those brokers are
// reached on the listener the client uses (KIP-951). The zero value with b and listener set is ready.
type leaderHints struct {
	b         *Broker
	listener  string
	img       *controller.Image
	endpoints []wire.NodeEndpoint
}

func (h *leaderHints) image() *controller.Image {
	if h.img == nil {
		h.img = h.b.images.Image()
	}
	return h.img
}

// leaderOf returns the leader and its epoch as clients are shown them, -1 for unknown, and notes its address.
func (h *leaderHints) leaderOf(p *controller.Partition) (leader, epoch int32) {
	if p == nil {
		return int32(ids.NoNode), int32(ids.NoEpoch)
	}
	node := h.image().Leader(p)
	h.note(node)
	return int32(node), int32(p.LeaderEpoch)
}

func (h *leaderHints) note(node ids.NodeID) {
	known := func(e wire.NodeEndpoint) bool { return e.NodeID == int32(node) }
	if node == ids.NoNode || slices.ContainsFunc(h.endpoints, known) {
		return
	}
	if host, port, rack, ok := h.b.endpoint(h.image(), node, h.listener); ok {
		h.endpoints = append(h.endpoints, wire.NodeEndpoint{NodeID: int32(node), Host: host, Port: port, Rack: rack})
	}
}
