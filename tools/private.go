package tools

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/wire"
)

// askAny sends one of our own requests to the first bootstrap address that answers it. franz-go knows Kafka's requests only.
func (c Connection) askAny(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	addrs, err := c.bootstrapAddresses()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, a := range addrs {
		resp, err := c.ask(ctx, a, req)
		if err == nil {
			return resp, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", a, err))
	}
	return nil, fmt.Errorf("%w at %s: %w; is a cairn broker running there? --bootstrap-server names another",
		ErrUnreachable, strings.Join(addrs, ","), errors.Join(errs...))
}

// bootstrapAddresses are those that open would use.
func (c Connection) bootstrapAddresses() ([]string, error) {
	props, err := c.properties()
	if err != nil {
		return nil, err
	}
	if _, _, err := clientOptions(props); err != nil {
		return nil, err
	}
	if list := props["bootstrap.servers"]; list != "" && c.Bootstrap == "" {
		return Connection{Bootstrap: list}.addresses()
	}
	return c.addresses()
}

// ask sends one request to the broker at that address, on a connection of its own.
func (c Connection) ask(ctx context.Context, address string, req kmsg.Request) (kmsg.Response, error) {
	d := net.Dialer{Timeout: dialTimeout}
	nc, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn := wire.NewConn(nc, wire.ConnConfig{ClientID: c.ClientID})
	resp, err := conn.RoundTrip(ctx, req)
	return resp, errors.Join(err, conn.Close())
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
