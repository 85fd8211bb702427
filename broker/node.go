package broker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/boot"
	"cairn/internal/ids"
	"cairn/raftgroup"

	"go.uber.org/zap"
)

// Node is one process: the data directory with its store, the Raft host, the controller and the broker, as far as the
// roles ask for them, and the servers. Start makes one; Shutdown ends it and everything it started.
type Node struct {
	cfg    *Config
	log    *zap.Logger
	broker *Broker

	dir *engine.DataDir
	// previousEpoch is the broker epoch of the last run if that was closed in order, else noBrokerEpoch.
	previousEpoch int64
	openedNs      uint64 // when the data directory was opened, by boot.Since

	engine  *engine.Engine
	host    *raftgroup.Host
	images  *controller.Store
	quorum  *controller.Controller
	server  *server
	metrics *metricsServer

	// ctx ends when the node is to stop waiting for others; tasks are what runs until then.
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	ready chan struct{}
	done  chan struct{}

	mu       sync.Mutex
	meta     *raftgroup.MachineGroup // guarded by mu; nil before the metadata replica was started
	client   *controller.Client      // guarded by mu; nil without the broker role
	replicas *runningReplicas        // guarded by mu; nil before partitions were started
	err      error                   // guarded by mu; why done is closed
	stopped  bool                    // guarded by mu
}

// runningReplicas is the replica manager's goroutine.
type runningReplicas struct {
	manager *replicaManager
	stop    context.CancelFunc
	done    chan struct{}
}

// Start opens the data directory and the listeners and starts what the roles ask for; joining the cluster goes on in the
// background, see Ready. ctx bounds Start alone. On an error nothing is left running.
func Start(ctx context.Context, cfg *Config, log *zap.Logger) (*Node, error) {
	n := &Node{
		cfg: cfg, log: log.With(zap.Int32("node", int32(cfg.NodeID))), images: controller.NewStore(),
		ready: make(chan struct{}), done: make(chan struct{}),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	cfg.warnWithoutEffect(n.log)
	if err := n.assemble(); err != nil {
		n.fail(err)
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), failedStartTimeout)
		defer cancel()
		return nil, errors.Join(err, n.Shutdown(stopCtx))
	}
	n.tasks.Go(n.join)
	return n, nil
}

// failedStartTimeout bounds the clean-up after a failed Start.
const failedStartTimeout = 5 * time.Second

// assemble opens and starts all parts that need no other node.
func (n *Node) assemble() error {
	b := newBroker(n.cfg, n.images, n.log)
	n.broker = b
	n.server = newServer(n.serverConfig())
	if err := n.listen(); err != nil { // first, so that a start on a port in use leaves the disk as it was
		return err
	}
	dir, err := engine.OpenDataDir(n.cfg.DataDir, n.cfg.NodeID)
	if err != nil {
		return err
	}
	n.dir, b.dir, n.openedNs = dir, dir, boot.Since()
	if n.previousEpoch, err = takeCleanShutdown(n.cfg.DataDir); err != nil {
		return err
	}
	e, err := engine.Open(engine.Config{
		Dir: n.cfg.DataDir, Flush: n.cfg.Flush, Logger: n.log.Named("engine"), OnDiskStall: b.diskStalled, OnDamage: b.storeDamaged, OnCorruption: b.storeCorrupt,
		MinFreeBytes: n.cfg.MinFreeBytes, BallastBytes: n.cfg.BallastBytes, BootID: n.bootID(), Faults: n.cfg.engineFaults,
	})
	if err != nil {
		return err
	}
	n.engine, b.engine = e, e
	n.tasks.Go(n.watchSpace)
	n.tasks.Go(n.reclaimSpace)
	n.host, err = raftgroup.NewHost(raftgroup.Config{
		NodeID: n.cfg.NodeID, Dir: n.raftDir(), Engine: n.engine, Dial: n.dialNode,
		OnPeerDown: n.peerDown, PeerTimeout: n.cfg.PeerTimeout, Logger: n.log.Named("raft"), Faults: n.cfg.faults,
	})
	if err != nil {
		return err
	}
	b.host = n.host
	if n.cfg.ControllerRole {
		if err := n.startQuorum(); err != nil {
			return err
		}
	}
	if n.cfg.BrokerRole {
		if err := n.startBroker(); err != nil {
			return err
		}
	}
	if n.metrics, err = startMetricsServer(n); err != nil {
		return err
	}
	for _, l := range n.server.bound() {
		n.server.accept(l)
	}
	n.tasks.Go(n.watchPeers)
	return nil
}

// bootID names the machine's run.
func (n *Node) bootID() string { return cmp.Or(n.cfg.bootID, boot.ID()) }

// newBroker makes what the handlers share, without the parts that are started one by one.
func newBroker(cfg *Config, images *controller.Store, log *zap.Logger) *Broker {
	b := &Broker{
		cfg: cfg, nodeID: cfg.NodeID, log: log, noise: newLogLimiter(time.Second), images: images,
		fetchMaxBytes: cfg.FetchMaxBytes, metrics: newMetrics(), memory: newMemory(cfg.RequestMemoryBytes),
		brokerHandlers: brokerTable(), controllerHandlers: controllerTable(),
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// startQuorum starts the metadata group's replica of a voter, and the controller on it.
func (n *Node) startQuorum() error {
	voters := make([]ids.NodeID, 0, len(n.cfg.Voters))
	for id := range n.cfg.Voters {
		voters = append(voters, id)
	}
	quorum, err := controller.New(controller.Config{
		Node: n.cfg.NodeID, Voters: voters, ClusterID: n.dir.Identity().ClusterID,
		SessionTimeout: n.cfg.SessionTimeout, ConnectionGrace: n.cfg.ConnectionGrace,
		NumPartitions: n.cfg.NumPartitions, ReplicationFactor: n.cfg.DefaultReplicationFactor,
		InternalReplicas: n.cfg.internalReplicas(), DeleteTopicsDisabled: !n.cfg.DeleteTopics, Static: n.cfg.topicLayer(),
		ValidateGroupConfigs: valueReader{n.cfg.values}.consumerGroups().ValidateGroup,
		ValidateBrokerConfig: validateDynamic, AskEnds: n.askEnds, RebalanceInterval: n.cfg.RebalanceInterval, Logger: n.log.Named("controller"),
	}, n.images)
	if err != nil {
		return err
	}
	n.quorum, n.broker.quorum = quorum, quorum
	meta, err := n.host.StartMachine(raftgroup.MachineConfig{
		Replica: controller.VoterReplica(n.cfg.NodeID), Members: controller.VoterMembers(voters),
		Machine: n.images, LeaderChanged: quorum.LeaderChanged,
	})
	if err != nil {
		return err
	}
	n.setMeta(meta)
	quorum.Start(meta)
	return nil
}

// startBroker makes the broker's parts; nothing is served before join has registered it.
func (n *Node) startBroker() error {
	identity := n.dir.Identity()
	endpoints, err := n.endpoints()
	if err != nil {
		return err
	}
	client, err := controller.NewClient(controller.ClientConfig{
		NodeID: n.cfg.NodeID, Incarnation: randomUUID(), Directory: identity.DirectoryID, Endpoints: endpoints, Rack: n.cfg.Rack,
		LogFlush: flushName(n.cfg.Flush), BootID: n.bootID(), OpenedNs: n.openedNs, PreviousEpoch: n.previousEpoch, ClusterID: identity.ClusterID,
		Voters: n.cfg.Voters, Local: n.quorum, Store: n.images, Dial: dialAddress,
		Ends:              func() []controller.PartitionEnd { return n.broker.replicas.logEnds() },
		HeartbeatInterval: n.cfg.HeartbeatInterval, SessionTimeout: n.cfg.SessionTimeout, Logger: n.log.Named("client"),
	})
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.client = client
	n.mu.Unlock()
	b := n.broker
	b.ctl = client
	b.purgatory = newPurgatory(purgatoryConfig{})
	b.fetchSessions = newFetchSessions(n.cfg.FetchSessionSlots)
	b.producerIDs = newProducerIDs(client.AllocateProducerID, n.log)
	b.startTransactions(n.dialNode)
	if err := b.startCoordinators(); err != nil {
		return err
	}
	b.replicas = newReplicaManager(replicaManagerConfig{
		NodeID: n.cfg.NodeID, Directory: identity.DirectoryID, Images: n.images, Client: client, Engine: n.engine, Host: n.host,
		Static: n.cfg.topicLayer(), LagTimeMax: n.cfg.LagTimeMax, Coordinations: b.coordinations,
		ProducerExpiry: b.producerExpiry, ProducerCheck: n.cfg.ProducerCheck, RetentionCheck: n.cfg.RetentionCheck, Dial: n.dialNode, Fail: n.fail,
		Cleaner: n.cleanerSettings(), Waiting: b.purgatory, Log: n.log,
	})
	b.scrubber.Store(newScrubber(b))
	b.markers = newMarkerWriter(b.appendMarkerHere, n.cfg.RequestTimeout)
	return nil
}

// cleanerSettings is nil when log.cleaner.enable is off.
func (n *Node) cleanerSettings() func() cleanerSettings {
	if !n.cfg.Cleaner {
		return nil
	}
	return n.broker.cleanerSettings
}

// Ready is closed once the node does its work: a broker is registered, unfenced and serves clients; a controller alone
// follows or leads the metadata group.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Done is closed when the node cannot go on, see Err, and when Shutdown begins.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err is why the node could not go on; nil before Done is closed and after an ordinary Shutdown.
func (n *Node) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// Addresses are the bound listeners as NAME://host:port, ports resolved.
func (n *Node) Addresses() []string {
	var list []string
	for _, l := range n.server.bound() {
		list = append(list, l.name+"://"+l.Addr().String())
	}
	return list
}

// MetricsAddress is the bound address of the metrics listener, "" without one.
func (n *Node) MetricsAddress() string { return n.metrics.address() }

// fail records why the node cannot go on. Only the first reason counts.
func (n *Node) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil || n.stopped {
		return
	}
	n.err = err
	close(n.done)
}

func (n *Node) setMeta(m *raftgroup.MachineGroup) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.meta = m
}

// peerDown reacts to a node that answers no more: the groups it led elect anew.
func (n *Node) peerDown(peer ids.NodeID) {
	if n.broker.replicas != nil {
		n.broker.replicas.peerDown(peer)
		return
	}
	n.host.FailOver(peer)
}

// watchPeers keeps the Raft host's list of peers to watch: all brokers and controllers that are known.
func (n *Node) watchPeers() {
	changed, stop := n.images.Watch()
	defer stop()
	for {
		select {
		case <-changed:
		case <-n.ctx.Done():
			return
		}
		peers := map[ids.NodeID]struct{}{}
		for id, address := range n.cfg.Voters {
			if address != "" {
				peers[id] = struct{}{}
			}
		}
		for id := range n.images.Image().Brokers {
			peers[id] = struct{}{}
		}
		delete(peers, n.cfg.NodeID)
		list := make([]ids.NodeID, 0, len(peers))
		for id := range peers {
			list = append(list, id)
		}
		n.host.WatchPeers(list)
	}
}

// dialNode connects to another node's Raft endpoint: a controller's address in controller.quorum.voters, a broker's
// inter-broker endpoint in the metadata.
func (n *Node) dialNode(ctx context.Context, node ids.NodeID) (net.Conn, error) {
	if address := n.cfg.Voters[node]; address != "" {
		return dialAddress(ctx, address)
	}
	br := n.images.Image().Brokers[node]
	if br == nil {
		return nil, fmt.Errorf("node %d is neither a voter nor a registered broker", node)
	}
	name := n.cfg.InterBroker
	e, ok := br.Endpoint(name)
	if !ok && name == "" && len(br.Endpoints) > 0 { // a controller alone does not know the name; the broker puts it first
		e, ok = br.Endpoints[0], true
	}
	if !ok {
		return nil, fmt.Errorf("broker %d has no listener %q", node, name)
	}
	return dialAddress(ctx, net.JoinHostPort(e.Host, fmt.Sprint(e.Port)))
}

func dialAddress(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

func randomUUID() (u ids.UUID) {
	for u.IsZero() {
		_, _ = rand.Read(u[:]) // never fails
	}
	return u
}

func flushName(f engine.FlushMode) string {
	if f == engine.FlushOS {
		return "os"
	}
	return "always"
}
