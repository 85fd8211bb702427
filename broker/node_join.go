package broker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/ids"
	"cairn/internal/properties"
	"cairn/raftgroup"
	"cairn/wire"

	"go.uber.org/zap"
)

// join makes the node part of the cluster, then opens it to clients.
func (n *Node) join() {
	err := n.joinCluster()
	switch {
	case err == nil:
		close(n.ready)
	case n.ctx.Err() == nil:
		n.fail(err)
	}
}

func (n *Node) joinCluster() error {
	if !n.cfg.BrokerRole {
		return n.awaitClusterID()
	}
	if err := n.startKnownReplica(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(n.ctx, n.cfg.RegistrationTimeout)
	defer cancel()
	client := n.broker.ctl
	reg, err := client.Register(ctx)
	if err != nil {
		return err
	}
	if err := n.dir.SetClusterID(reg.ClusterID); err != nil {
		return err
	}
	if err := n.startRegisteredReplica(reg); err != nil {
		return err
	}
	client.Start()
	n.tasks.Go(n.watchClient)
	// An older state of the metadata may name generations that are over: no partition starts before this.
	if err := awaitImage(ctx, n.images, func(img *controller.Image) bool { return img.Index >= reg.MetadataEnd }); err != nil {
		return fmt.Errorf("metadata replica has not reached entry %d: %w", reg.MetadataEnd, err)
	}
	n.startReplicas()
	if err := client.Unfence(n.ctx); err != nil {
		return err
	}
	close(n.server.opened)
	n.log.Info("broker is ready", zap.Strings("listeners", n.Addresses()))
	return nil
}

// awaitClusterID waits until the metadata has a cluster id and makes the data directory that cluster's.
func (n *Node) awaitClusterID() error {
	if err := awaitImage(n.ctx, n.images, func(img *controller.Image) bool { return img.ClusterID != "" }); err != nil {
		return err
	}
	if err := n.dir.SetClusterID(n.images.Image().ClusterID); err != nil {
		return err
	}
	n.log.Info("controller is ready", zap.Strings("listeners", n.Addresses()))
	return nil
}

// startKnownReplica starts the metadata replica of a broker that has been part of the cluster before, so that it holds
// and follows the metadata also while no controller answers.
func (n *Node) startKnownReplica() error {
	if n.cfg.ControllerRole {
		return nil
	}
	replica, err := readMetadataReplica(n.cfg.DataDir)
	if err != nil || replica == 0 {
		return err
	}
	return n.followMetadata(replica)
}

// startRegisteredReplica starts the metadata replica that the controller has added for this broker, unless it runs.
func (n *Node) startRegisteredReplica(reg controller.Registration) error {
	if n.cfg.ControllerRole {
		return nil
	}
	n.mu.Lock()
	meta := n.meta
	n.mu.Unlock()
	if meta != nil {
		if meta.Self() != reg.MetadataReplica {
			return fmt.Errorf("data directory %s holds metadata replica %d, the controller expects replica %d: empty the directory, or use the one that belongs to node %d",
				n.cfg.DataDir, meta.Self(), reg.MetadataReplica, n.cfg.NodeID)
		}
		return nil
	}
	if err := writeMetadataReplica(n.cfg.DataDir, reg.MetadataReplica); err != nil {
		return err
	}
	return n.followMetadata(reg.MetadataReplica)
}

// followMetadata starts a metadata replica without a vote.
func (n *Node) followMetadata(replica ids.ReplicaID) error {
	meta, err := n.host.StartMachine(raftgroup.MachineConfig{Replica: replica, Join: true, NonVoting: true, Machine: n.images})
	if err != nil {
		return err
	}
	n.setMeta(meta)
	return nil
}

// startReplicas starts the replica manager, which from now on makes the local partitions what the metadata says.
func (n *Node) startReplicas() {
	ctx, stop := context.WithCancel(context.WithoutCancel(n.ctx))
	r := &runningReplicas{manager: n.broker.replicas, stop: stop, done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped {
		stop()
		return
	}
	n.replicas = r
	n.tasks.Go(func() { n.broker.watchLosses(n.ctx) })
	n.tasks.Go(func() { n.broker.watchDeletedTopics(n.ctx) })
	n.tasks.Go(func() { n.broker.limitQuarantine(n.ctx) })
	n.tasks.Go(func() { n.broker.scrubber.Load().run(n.ctx, n.fail) })
	go func() {
		defer close(r.done)
		r.manager.run(ctx)
	}()
}

// watchClient ends the node when the controller rejects it.
func (n *Node) watchClient() {
	select {
	case <-n.broker.ctl.Failed():
		n.fail(n.broker.ctl.Err())
	case <-n.ctx.Done():
	}
}

// metadataReplicaFile keeps the broker's replica id in the metadata group, which a controller gave out.
const metadataReplicaFile = engine.MetadataReplicaFile

// readMetadataReplica returns the stored id, 0 when there is none.
func readMetadataReplica(dir string) (ids.ReplicaID, error) {
	path := filepath.Join(dir, metadataReplicaFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	id, err := parseMetadataReplica(string(text))
	if err != nil {
		return 0, fmt.Errorf("%s is damaged, or was changed by hand: %w; remove the file: the controller tells the id again", path, err)
	}
	return id, nil
}

// parseMetadataReplica takes texts that were written before there was a checksum to the letter alone.
func parseMetadataReplica(text string) (ids.ReplicaID, error) {
	body, sealed, err := properties.Unseal(text)
	if err != nil {
		return 0, err
	}
	list, err := properties.Parse(body)
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseUint(list.Map()["replica.id"], 10, 64)
	if err != nil || id == 0 {
		return 0, fmt.Errorf("replica.id=%q is no replica id", list.Map()["replica.id"])
	}
	if !sealed && body != metadataReplicaText(ids.ReplicaID(id)) {
		return 0, errors.New("it has no checksum, and not the form that it had before there was one")
	}
	return ids.ReplicaID(id), nil
}

// metadataReplicaText is the text above the checksum.
func metadataReplicaText(id ids.ReplicaID) string {
	return fmt.Sprintf("# This broker's replica of the metadata group. Do not edit.\nreplica.id=%d\n", id)
}

// writeMetadataReplica stores the id durably. After a crash it is there or not, whole.
func writeMetadataReplica(dir string, id ids.ReplicaID) error {
	return writeFileDurably(filepath.Join(dir, metadataReplicaFile), properties.Seal(metadataReplicaText(id)))
}

// raftDir is where dragonboat keeps its own files.
func (n *Node) raftDir() string { return filepath.Join(n.cfg.DataDir, engine.RaftDir) }

// serverConfig is what the server needs of the node.
func (n *Node) serverConfig() serverConfig {
	apis, err := wire.NewTable(privateAPIs()...)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	b := n.broker
	return serverConfig{
		Dispatch: b.dispatch, APIs: apis, Bounds: b.connBounds, Memory: b.memory, Metrics: b.metrics,
		ServeRaft: func(nc net.Conn, br *bufio.Reader) error { return n.host.ServeConn(nc, br) },
		MaxFrame:  n.cfg.MaxRequestBytes, MaxIdle: n.cfg.MaxIdle,
		SendBuffer: n.cfg.SendBufferBytes, ReceiveBuffer: n.cfg.ReceiveBufferBytes, Log: n.log,
	}
}

// listen binds all listeners.
func (n *Node) listen() error {
	var errs []error
	for _, l := range n.cfg.Listeners {
		address := net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port)))
		_, err := n.server.listen(l.Name, address, l.Controller, l.Controller || l.Name == n.cfg.InterBroker)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// endpoints are the advertised listeners, with the bound ports in place of 0. The one for other nodes comes first, since a controller alone
// does not know its name.
func (n *Node) endpoints() ([]controller.Endpoint, error) {
	var list []controller.Endpoint
	for _, a := range n.cfg.Advertised {
		port := a.Port
		for _, l := range n.server.bound() {
			if port == 0 && l.name == a.Name {
				port = l.port()
			}
		}
		if port == 0 {
			return nil, fmt.Errorf("%w: advertised.listeners: %s has port 0", errConfig, a.Name)
		}
		e := controller.Endpoint{Name: a.Name, Host: a.Host, Port: uint16(port)}
		if a.Name == n.cfg.InterBroker {
			list = slices.Insert(list, 0, e)
			continue
		}
		list = append(list, e)
	}
	return list, nil
}
