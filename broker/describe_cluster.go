package broker

import (
	"net"
	"slices"
	"strconv"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The endpoint types of DescribeCluster.
const (
	endpointBrokers     int8 = 1
	endpointControllers int8 = 2
)

// handleDescribeCluster lists the brokers, or the controllers when it came in on a controller listener.
func handleDescribeCluster(b *Broker, r *request) {
	req := r.msg.(*kmsg.DescribeClusterRequest)
	img := b.images.Image()
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.EndpointType, resp.ClusterID, resp.ControllerID = endpointBrokers, img.ClusterID, int32(b.shownController(img))
	if r.conn.listener.controller {
		resp.EndpointType = endpointControllers
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	switch {
	case req.EndpointType != endpointBrokers && req.EndpointType != endpointControllers:
		resp.ErrorCode, resp.ErrorMessage = kerr.UnsupportedEndpointType.Code, kmsg.StringPtr("Unknown endpoint type.")
	case req.EndpointType != resp.EndpointType:
		resp.ErrorCode, resp.ErrorMessage = kerr.MismatchedEndpointType.Code, kmsg.StringPtr("This listener does not serve that endpoint type.")
	case r.conn.listener.controller:
		resp.ControllerID = int32(img.Controller)
		resp.Brokers = b.controllers()
	default:
		resp.Brokers = b.clusterBrokers(r.listenerName(), req.IncludeFencedBrokers)
	}
	r.reply(resp)
}

// clusterBrokers are the brokers with an endpoint of the listener's name.
func (b *Broker) clusterBrokers(listener string, fenced bool) []kmsg.DescribeClusterResponseBroker {
	var list []kmsg.DescribeClusterResponseBroker
	for _, br := range b.images.Image().BrokerList() {
		e, ok := br.Endpoint(listener)
		if !ok || br.Fenced && !fenced {
			continue
		}
		d := kmsg.NewDescribeClusterResponseBroker()
		d.NodeID, d.Host, d.Port, d.Rack, d.IsFenced = int32(br.ID), e.Host, int32(e.Port), br.Rack, br.Fenced
		list = append(list, d)
	}
	return list
}

// controllers are the nodes of controller.quorum.voters.
func (b *Broker) controllers() []kmsg.DescribeClusterResponseBroker {
	var list []kmsg.DescribeClusterResponseBroker
	for id, address := range b.cfg.Voters {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			continue // the only voter, without an address
		}
		n, _ := strconv.ParseInt(port, 10, 32)
		d := kmsg.NewDescribeClusterResponseBroker()
		d.NodeID, d.Host, d.Port = int32(id), host, int32(n)
		list = append(list, d)
	}
	slices.SortFunc(list, func(x, y kmsg.DescribeClusterResponseBroker) int {
		return int(ids.NodeID(x.NodeID) - ids.NodeID(y.NodeID))
	})
	return list
}
