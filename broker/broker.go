package broker

import (
	"context"
	"sync"
	"sync/atomic"

	"cairn/broker/controller"
	"cairn/broker/coordinator"
	"cairn/broker/group"
	"cairn/broker/txn"
	"cairn/engine"
	"cairn/internal/ids"
	"cairn/raftgroup"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// Broker is what the handlers of one process share. A process with the controller role only has a Broker too, whose
// engine holds no partitions and whose replicas and purgatory are nil: only the controller listener's handlers run.
// All fields but the mutex are set before the first connection is accepted, and constant from then on.
type Broker struct {
	cfg    *Config
	nodeID ids.NodeID
	log    *zap.Logger
	noise  *logLimiter
	// ctx ends when the broker stops, after the connections have been drained.
	ctx    context.Context
	cancel context.CancelFunc

	dir    *engine.DataDir
	engine *engine.Engine
	host   *raftgroup.Host
	images *controller.Store
	// ctl is the broker's side of the controller protocol; nil without the broker role.
	ctl *controller.Client
	// quorum is the controller that runs in this process; nil without the controller role.
	quorum *controller.Controller

	replicas      *replicaManager
	purgatory     *purgatory
	fetchSessions *fetchSessions
	producerIDs   *producerIDs
	markers       *markerWriter
	fetchMaxBytes int32

	// The coordinators, and all of them by the topics of their state.
	groups *coordinator.Coordinator[*group.Machine]
	txns   *coordinator.Coordinator[*txn.Machine]
	// markerSender ends what txns decides; markerConns and coordinatorConns lead to other brokers.
	markerSender                                   *markerSender
	markerConns, slowMarkerConns, coordinatorConns *brokerConns
	coordinations                                  map[string]coordination
	internal                                       internalTopics
	// verifyTxn asks the coordinator of a transaction about partitions; one error for each, nil where the transaction may begin. It
	// waits, until ctx ends at the latest. nil: there is no transaction coordinator.
	verifyTxn func(ctx context.Context, v txnVerification) []error

	metrics *metrics
	memory  *memory
	// scrubber is nil without the broker role.
	scrubber      atomic.Pointer[scrubber]
	checkpointing atomic.Bool // one checkpoint at a time
	// inspecting is held while a partition is inspected for an operator: one at a time, since it reads everything.
	inspecting sync.Mutex

	// The dispatch tables of the two kinds of listeners.
	brokerHandlers, controllerHandlers map[kmsg.Key]handler
}

// endpoint returns where clients that came in on listener reach node. ok is false when the node is unknown, fenced,
// or has no such listener.
func (b *Broker) endpoint(img *controller.Image, node ids.NodeID, listener string) (host string, port int32, rack *string, ok bool) {
	br := img.Brokers[node]
	if br == nil || br.Fenced {
		return "", -1, nil, false
	}
	for _, e := range br.Endpoints {
		if e.Name == listener {
			return e.Host, int32(e.Port), br.Rack, true
		}
	}
	return "", -1, nil, false
}
