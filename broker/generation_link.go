package broker

import (
	"context"
	"fmt"
	"sync"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/ids"
	"cairn/wire"
)

// leaderLink asks the leader of one partition for its log below the generation's base. It belongs to one goroutine.
type leaderLink struct {
	m    *replicaManager
	node ids.NodeID
	conn *wire.Conn
	req  logPrefixRequest
}

// leaderConns are the connections to leaders, one to each broker, shared by the partitions that it leads.
type leaderConns struct {
	mu     sync.Mutex
	conns  map[ids.NodeID]*wire.Conn // guarded by mu
	closed bool                      // guarded by mu
}

// get returns an open connection to the node, and dials if there is none.
func (l *leaderConns) get(node ids.NodeID, dial func() (*wire.Conn, error)) (*wire.Conn, error) {
	l.mu.Lock()
	c := l.conns[node]
	l.mu.Unlock()
	if c != nil && c.Err() == nil {
		return c, nil
	}
	fresh, err := dial()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	now, closed := l.conns[node], l.closed // now is nil if somebody dropped c meanwhile
	ours := !closed && (now == nil || now == c || now.Err() != nil)
	if ours {
		if l.conns == nil {
			l.conns = map[ids.NodeID]*wire.Conn{}
		}
		l.conns[node] = fresh
	}
	l.mu.Unlock()
	switch {
	case closed:
		_ = fresh.Close()
		return nil, context.Canceled
	case !ours: // somebody was faster
		_ = fresh.Close()
		return now, nil
	case now != nil:
		_ = now.Close()
	}
	return fresh, nil
}

// drop closes a connection that failed.
func (l *leaderConns) drop(node ids.NodeID, c *wire.Conn) {
	l.mu.Lock()
	if l.conns[node] == c {
		delete(l.conns, node)
	}
	l.mu.Unlock()
	_ = c.Close()
}

func (l *leaderConns) close() {
	l.mu.Lock()
	conns := l.conns
	l.conns, l.closed = nil, true
	l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// dialLeader connects to the partition's registered leader. errNotYet when there is none that can be reached.
func (m *replicaManager) dialLeader(info engine.PartitionInfo, state *controller.Partition) (*leaderLink, error) {
	node := m.cfg.Images.Image().Leader(state)
	if node == ids.NoNode || node == m.cfg.NodeID {
		return nil, fmt.Errorf("%w: nobody leads %s", errNotYet, label(info))
	}
	conn, err := m.leaders.get(node, func() (*wire.Conn, error) { return m.dialReplica(node) })
	if err != nil {
		return nil, fmt.Errorf("%w: leader of %s: %w", errNotYet, label(info), err)
	}
	return &leaderLink{m: m, node: node, conn: conn, req: logPrefixRequest{
		topicID: info.TopicID, partition: info.Partition, shard: state.Shard, leaderEpoch: state.LeaderEpoch, node: m.cfg.NodeID, maxBytes: prefixBytesMax,
	}}, nil
}

// dialReplica opens a connection to another broker for questions about replicas.
func (m *replicaManager) dialReplica(node ids.NodeID) (*wire.Conn, error) {
	ctx, cancel := m.askContext()
	defer cancel()
	nc, err := m.cfg.Dial(ctx, node)
	if err != nil {
		return nil, err
	}
	return wire.NewConn(nc, wire.ConnConfig{ClientID: fmt.Sprintf("broker-%d-replica", m.cfg.NodeID)}), nil
}

// ask asks for batches from an offset on; ids.NoOffset: for none.
func (l *leaderLink) ask(from ids.Offset) (*logPrefixResponse, error) {
	ctx, cancel := l.m.askContext()
	defer cancel()
	req := l.req
	req.from = from
	answer, err := l.conn.RoundTrip(ctx, &req)
	if err != nil {
		l.m.leaders.drop(l.node, l.conn) // also one that does not answer in time
		return nil, fmt.Errorf("%w: %w", errNotYet, err)
	}
	resp := answer.(*logPrefixResponse)
	return resp, leaderError(resp.code)
}
