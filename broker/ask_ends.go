package broker

import (
	"context"
	"fmt"

	"cairn/broker/controller"
	"cairn/internal/ids"
	"cairn/wire"
	"cairn/wire/private"
)

// askEnds asks a broker how far its replicas reach, on a connection of its own: it is needed rarely, and a broker that does
// not answer must not hold up the question to it after that.
func (n *Node) askEnds(ctx context.Context, b *controller.Broker, partitions []ids.PartitionID) ([]controller.PartitionEnd, error) {
	nc, err := n.dialNode(ctx, b.ID)
	if err != nil {
		return nil, err
	}
	conn := wire.NewConn(nc, wire.ConnConfig{ClientID: fmt.Sprintf("controller-%d", n.cfg.NodeID)})
	defer func() { _ = conn.Close() }() // it never fails
	answer, err := conn.RoundTrip(ctx, &private.ReplicasRequest{Body: private.ReplicaQuery{Partitions: partitions}})
	if err != nil {
		return nil, err
	}
	var ends []controller.PartitionEnd
	for _, r := range answer.(*private.ReplicasResponse).Body.Replicas {
		ends = append(ends, controller.PartitionEnd{
			Partition: r.Partition, LogEnd: controller.LogEnd{LeaderEpoch: r.LeaderEpoch, End: r.End, AppendMs: r.AppendMs},
		})
	}
	return ends, nil
}
