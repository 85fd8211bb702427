package tools

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/wire"
)

// askAny sends one of our own requests to the first bootstrap address that answers it. franz-go knows Kafka's requests only. An address behind which
// nobody answers, as a frozen broker's, is given up for the next one after adminAnswer.
func (c Connection) askAny(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	addrs, props, err := c.Resolve()
	if err != nil {
		return nil, err
	}
	if _, _, err := clientOptions(props); err != nil {
		return nil, UsageError{err}
	}
	var errs []error
	for i, a := range addrs {
		wait, cancel := ctx, context.CancelFunc(func() {})
		if i < len(addrs)-1 {
			wait, cancel = context.WithTimeout(ctx, adminAnswer)
		}
		resp, err := c.ask(wait, a, req)
		cancel()
		if err == nil {
			return resp, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", a, err))
	}
	return nil, fmt.Errorf("%w at %s: %w; is a cairn broker running there? --bootstrap-server names another",
		ErrUnreachable, strings.Join(addrs, ","), errors.Join(errs...))
}

// ask sends one request to the broker at that address, on a connection of its own.
func (c Connection) ask(ctx context.Context, address string, req kmsg.Request) (kmsg.Response, error) {
	d := net.Dialer{Timeout: dialTimeout}
	nc, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn := wire.NewConn(nc, c.connConfig(ctx))
	resp, err := conn.RoundTrip(ctx, req)
	return resp, errors.Join(err, conn.Close())
}

// connConfig has a connection wait for an answer until ctx ends, where that has a deadline: some answers take minutes.
func (c Connection) connConfig(ctx context.Context) wire.ConnConfig {
	cfg := wire.ConnConfig{ClientID: c.ClientID}
	if end, ok := ctx.Deadline(); ok {
		cfg.ResponseTimeout = time.Until(end) + time.Second // it is for ctx to say that the time is over
	}
	return cfg
}

// brokerAddresses returns the addresses of the live brokers by id.
func brokerAddresses(ctx context.Context, cl *kgo.Client) (map[int32]string, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none; null would be all
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	addresses := map[int32]string{}
	for _, b := range resp.Brokers {
		addresses[b.NodeID] = net.JoinHostPort(b.Host, fmt.Sprint(b.Port))
	}
	return addresses, nil
}
