package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cairn/internal/ids"
	"cairn/raftgroup"

	"go.uber.org/zap"
)

// closeTimeout bounds the part of Shutdown that must be done whatever the caller's time.
const closeTimeout = 10 * time.Second

// confirmTimeout bounds the wait for the controller once there is nothing left to hand over. It is short: the partitions
// that could not be handed over have no leader until this process has ended.
const confirmTimeout = 300 * time.Millisecond

// Shutdown hands leadership over, answers what is under way, flushes and closes everything. When ctx ends, it stops
// waiting for others and closes at once. It returns when every goroutine of the node has ended. A second call returns nil.
func (n *Node) Shutdown(ctx context.Context) error {
	n.mu.Lock()
	if n.stopped {
		n.mu.Unlock()
		return nil
	}
	n.stopped = true
	if n.err == nil {
		close(n.done)
	}
	n.mu.Unlock()

	n.cancel()
	n.tasks.Wait()
	n.handOver(ctx) // the listeners stay open: the successors' Raft traffic may need new connections
	n.stopServing(ctx)
	return n.closeAll()
}

// handOver gives the leadership of partitions and of the metadata group to other nodes, as far as there are any and
// ctx allows.
func (n *Node) handOver(ctx context.Context) {
	n.mu.Lock()
	replicas, meta := n.replicas, n.meta
	n.mu.Unlock()
	if replicas != nil {
		stop, told := n.tellController(ctx)
		if err := replicas.manager.shutdown(ctx); err != nil {
			n.log.Warn("leadership not handed over completely", zap.Error(err))
		}
		stop()
		<-told
	}
	if n.cfg.ControllerRole && meta != nil {
		n.handOverMetadata(ctx, meta)
	}
}

// tellController announces the shutdown, meanwhile, and waits for the controller's consent: told is closed when that has
// come, or confirmTimeout after stop was called.
func (n *Node) tellController(ctx context.Context) (stop func(), told <-chan struct{}) {
	done := make(chan struct{})
	if !n.cfg.ControlledShutdown || !n.registered() {
		close(done)
		return func() {}, done
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(done)
		defer cancel()
		if err := n.broker.ctl.ControlledShutdown(ctx); err != nil {
			n.log.Warn("controlled shutdown not confirmed by the controller", zap.Error(err))
		}
	}()
	return func() { time.AfterFunc(confirmTimeout, cancel) }, done
}

func (n *Node) registered() bool {
	select {
	case <-n.ready:
		return true
	default:
		return false
	}
}

// handOverMetadata makes another voter the leader of the metadata group and waits a moment until it is.
func (n *Node) handOverMetadata(ctx context.Context, meta *raftgroup.MachineGroup) {
	leader, _, ok := meta.Leader()
	if !ok || leader != meta.Self() || len(n.cfg.Voters) < 2 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	members, err := meta.Membership(ctx)
	if err != nil {
		return
	}
	for r := range members.Voters {
		if r == meta.Self() {
			continue
		}
		if err := meta.TransferLeadership(r); err == nil && n.awaitMetadataLeader(ctx, meta, meta.Self()) {
			return
		}
	}
}

// awaitMetadataLeader waits until the group has another leader than the given replica.
func (n *Node) awaitMetadataLeader(ctx context.Context, meta *raftgroup.MachineGroup, not ids.ReplicaID) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if leader, _, ok := meta.Leader(); ok && leader != not {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

// stopServing ends waiting requests and all connections.
func (n *Node) stopServing(ctx context.Context) {
	b := n.broker
	if b == nil {
		return
	}
	b.stopCoordinators()
	b.stopTransactions()
	if b.purgatory != nil {
		b.purgatory.close()
	}
	if b.producerIDs != nil {
		b.producerIDs.close()
		if b.markers != nil {
			b.markers.close()
		}
	}
	if n.server != nil {
		n.server.drain(ctx)
	}
	b.cancel()
}

// closeAll closes the parts in the opposite order of their start.
func (n *Node) closeAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	n.mu.Lock()
	replicas, meta, client := n.replicas, n.meta, n.client
	n.mu.Unlock()
	var errs []error
	if replicas != nil {
		replicas.stop()
		<-replicas.done
	}
	if n.quorum != nil { // before the client, whose end it would take for a broker's death
		n.quorum.Close()
	}
	if client != nil {
		client.Close()
	}
	if meta != nil {
		errs = append(errs, meta.Stop(ctx))
	}
	errs = append(errs, n.metrics.close()) // it reads the engine
	if n.engine != nil {
		n.engine.StopWaiting() // for a full disk nobody waits any more
	}
	if n.host != nil {
		errs = append(errs, n.host.Close())
	}
	if n.engine != nil {
		errs = append(errs, n.engine.Close())
	}
	if client != nil && n.engine != nil && errors.Join(errs...) == nil {
		if epoch := client.Registration().BrokerEpoch; epoch != 0 {
			errs = append(errs, noteCleanShutdown(n.cfg.DataDir, epoch))
		}
	}
	if n.dir != nil {
		errs = append(errs, n.dir.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("shutdown: %w", err)
	}
	return nil
}
