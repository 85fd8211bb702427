package broker

import (
	"context"
	"net"
	"time"

	"cairn/internal/ids"
	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// brokerConns are connections to other brokers for one kind of requests, one to each broker. Requests to one broker are
// answered in order, so what may wait long has connections of its own.
type brokerConns struct {
	conns leaderConns
	dial  func(ctx context.Context, node ids.NodeID) (net.Conn, error)
	// clientID is what this broker calls itself, within how long a broker has to answer.
	clientID string
	within   time.Duration
}

// request sends a request to a broker and returns its answer. On an error it may have been carried out, except with
// wire.ErrNotSent.
func (c *brokerConns) request(ctx context.Context, node ids.NodeID, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	conn, err := c.conns.get(node, func() (*wire.Conn, error) {
		nc, err := c.dial(ctx, node)
		if err != nil {
			return nil, err
		}
		return wire.NewConn(nc, wire.ConnConfig{ClientID: c.clientID, ResponseTimeout: c.within}), nil
	})
	if err != nil {
		return nil, err
	}
	resp, err := conn.RoundTrip(ctx, req)
	if err != nil && conn.Err() != nil {
		c.conns.drop(node, conn)
	}
	return resp, err
}

func (c *brokerConns) close() { c.conns.close() }
