package broker

import (
	"context"
	"fmt"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/ids"
	"cairn/wire"
)

// leaderLink asks the leader of one partition for its log below the generation's base. It belongs to one goroutine.
type leaderLink struct {
	m    *replicaManager
	conn *wire.Conn
	req  logPrefixRequest
}

// dialLeader connects to the partition's registered leader. errNotYet when there is none that can be reached.
func (m *replicaManager) dialLeader(info engine.PartitionInfo, state *controller.Partition) (*leaderLink, error) {
	node := m.cfg.Images.Image().Leader(state)
	if node == ids.NoNode || node == m.cfg.NodeID {
		return nil, fmt.Errorf("%w: nobody leads %s", errNotYet, label(info))
	}
	ctx, cancel := m.askContext()
	defer cancel()
	nc, err := m.cfg.Dial(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("%w: leader of %s: %w", errNotYet, label(info), err)
	}
	return &leaderLink{
		m:    m,
		conn: wire.NewConn(nc, wire.ConnConfig{ClientID: fmt.Sprintf("broker-%d-replica", m.cfg.NodeID)}),
		req: logPrefixRequest{
			topicID: info.TopicID, partition: info.Partition, shard: state.Shard, leaderEpoch: state.LeaderEpoch, maxBytes: prefixBytesMax,
		},
	}, nil
}

func (l *leaderLink) close() { _ = l.conn.Close() }

// ask asks for batches from an offset on; ids.NoOffset: for none.
func (l *leaderLink) ask(from ids.Offset) (*logPrefixResponse, error) {
	ctx, cancel := l.m.askContext()
	defer cancel()
	return l.askWithin(ctx, from)
}

func (l *leaderLink) askWithin(ctx context.Context, from ids.Offset) (*logPrefixResponse, error) {
	req := l.req
	req.from = from
	answer, err := l.conn.RoundTrip(ctx, &req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotYet, err)
	}
	resp := answer.(*logPrefixResponse)
	return resp, leaderError(resp.code)
}
