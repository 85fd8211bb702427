package controller

import (
	"context"
	"fmt"
	"time"

	"cairn/wire/private"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Conn is one connection to the controller: a broker's control connection once it has carried a heartbeat or a
// registration, else one for admin requests.
type Conn struct {
	c       *Controller
	session *session // guarded by c.mu
	closed  bool     // guarded by c.mu
}

// NewConn is called for each connection that is accepted.
func (c *Controller) NewConn() *Conn { return &Conn{c: c} }

// Close is called when the connection has ended, for whatever reason. When a broker's last one ends, the broker is fenced
// after the grace time.
func (cc *Conn) Close() {
	cc.c.mu.Lock()
	defer cc.c.mu.Unlock()
	cc.closed = true
	cc.c.unbindLocked(cc)
}

// Handle answers a request, never with nil: it returns after the request's effect is committed and applied here, or after
// the request's own timeout. It panics for a request whose key it does not handle, see Handles. Safe for concurrent use; a
// broker's heartbeats must arrive in order.
func (cc *Conn) Handle(ctx context.Context, req kmsg.Request) kmsg.Response {
	ctx, cancel := context.WithTimeout(ctx, cc.c.timeout(req))
	defer cancel()
	switch r := req.(type) {
	case *kmsg.BrokerRegistrationRequest:
		return cc.registerBroker(ctx, r)
	case *kmsg.BrokerHeartbeatRequest:
		return cc.heartbeat(ctx, r)
	case *kmsg.AllocateProducerIDsRequest:
		return cc.c.allocateProducerIDs(ctx, r)
	case *kmsg.AlterPartitionRequest:
		return cc.c.alterPartitions(ctx, r)
	case *RegisterLeadersRequest:
		return cc.c.registerLeaders(ctx, r)
	case *ReplicaCommandRequest:
		return cc.c.replicaCommand(ctx, r)
	case *kmsg.CreateTopicsRequest:
		return cc.c.createTopics(ctx, r)
	case *kmsg.DeleteTopicsRequest:
		return cc.c.deleteTopics(ctx, r)
	case *kmsg.CreatePartitionsRequest:
		return cc.c.createPartitions(ctx, r)
	case *kmsg.IncrementalAlterConfigsRequest:
		return cc.c.incrementalAlterConfigs(ctx, r)
	case *kmsg.AlterConfigsRequest:
		return cc.c.alterConfigs(ctx, r)
	case *kmsg.UpdateFeaturesRequest:
		return cc.c.updateFeatures(ctx, r)
	case *kmsg.ElectLeadersRequest:
		return cc.c.electLeaders(ctx, r)
	case *kmsg.AlterPartitionAssignmentsRequest:
		return cc.c.alterReassignments(ctx, r)
	case *kmsg.ListPartitionReassignmentsRequest:
		return cc.c.listReassignments(r)
	case *kmsg.DescribeQuorumRequest:
		return cc.c.describeQuorum(r)
	case *private.ElectionsRequest:
		return cc.c.previewElections(ctx, r)
	default:
		panic(fmt.Sprintf("BUG: %T is not the controller's", req))
	}
}

// Handles reports whether Conn.Handle takes requests of that key.
func Handles(key int16) bool {
	switch kmsg.Key(key) {
	case kmsg.BrokerRegistration, kmsg.BrokerHeartbeat, kmsg.AllocateProducerIDs, kmsg.AlterPartition, kmsg.CreateTopics, kmsg.DeleteTopics,
		kmsg.CreatePartitions, kmsg.IncrementalAlterConfigs, kmsg.AlterConfigs, kmsg.ElectLeaders, kmsg.AlterPartitionAssignments,
		kmsg.ListPartitionReassignments, kmsg.DescribeQuorum, kmsg.UpdateFeatures, kmsg.Key(private.ElectionsKey), registerLeadersKey,
		replicaCommandKey:
		return true
	}
	return false
}

// timeout is the request's own if it has one.
func (c *Controller) timeout(req kmsg.Request) time.Duration {
	if t, ok := req.(kmsg.TimeoutRequest); ok && t.Timeout() > 0 {
		return time.Duration(t.Timeout()) * time.Millisecond
	}
	return c.cfg.ProposeTimeout
}

// notActive reports whether requests are to be refused, with the code.
func (c *Controller) notActive() (int16, bool) {
	return kerr.NotController.Code, !c.Active()
}
