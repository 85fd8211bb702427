package nodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ControllerID is the node id of the separate controller that Three makes.
const ControllerID = 100

// Cluster is a set of nodes under one directory.
type Cluster struct {
	Dir   string
	Nodes []*Node // brokers in the order of their ids, then the controller if it is separate

	keep bool
}

// newCluster makes the directory. Its parent is CAIRN_TEST_DIR, or that for temporary files.
func newCluster() (*Cluster, error) {
	dir, err := os.MkdirTemp(os.Getenv("CAIRN_TEST_DIR"), "cairn-")
	if err != nil {
		return nil, err
	}
	return &Cluster{Dir: dir}, nil
}

// Single makes one node that is broker and controller, not yet started. props are laid over the usual ones.
func Single(binary string, props map[string]string) (*Cluster, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	c, err := newCluster()
	if err != nil {
		return nil, err
	}
	return c, c.add(binary, 1, "broker,controller", "1@"+local(ports[1]), ports, props)
}

// Three makes brokers 1 to 3 and a controller that is a node of its own, not yet started. props are laid over the usual ones of the brokers.
func Three(binary string, props map[string]string) (*Cluster, error) {
	ports, err := freePorts(12)
	if err != nil {
		return nil, err
	}
	c, err := newCluster()
	if err != nil {
		return nil, err
	}
	voters := fmt.Sprintf("%d@%s", ControllerID, local(ports[10]))
	for i := range 3 {
		err = errors.Join(err, c.add(binary, i+1, "broker", voters, ports[3*i:3*i+3], props))
	}
	return c, errors.Join(err, c.add(binary, ControllerID, "controller", voters, ports[9:], nil))
}

// add makes a node; ports are those for clients, controllers and metrics.
func (c *Cluster) add(binary string, id int, roles, voters string, ports []int, props map[string]string) error {
	n := &Node{ID: id, Dir: filepath.Join(c.Dir, "node-"+strconv.Itoa(id)), Metrics: local(ports[2]), binary: binary}
	if err := os.Mkdir(n.Dir, 0o700); err != nil {
		return err
	}
	n.Props = map[string]string{
		"process.roles": roles, "node.id": strconv.Itoa(id), "controller.quorum.voters": voters, "controller.listener.names": "CONTROLLER",
		"log.dirs": n.DataDir(), "metrics.listener": n.Metrics, "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
	}
	var listeners []string
	if strings.Contains(roles, "broker") {
		n.Addr = local(ports[0])
		listeners = append(listeners, "CLIENT://"+n.Addr)
		n.Props["inter.broker.listener.name"] = "CLIENT"
	}
	if strings.Contains(roles, "controller") {
		listeners = append(listeners, "CONTROLLER://"+local(ports[1]))
	}
	n.Props["listeners"] = strings.Join(listeners, ",")
	maps.Copy(n.Props, props)
	c.Nodes = append(c.Nodes, n)
	return nil
}

// Start starts all nodes and waits until they serve.
func (c *Cluster) Start(ctx context.Context) error {
	for _, n := range c.Nodes {
		if err := n.Start(); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes {
		if _, err := n.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Node returns the node with the id; a wrong id is a mistake of the caller.
func (c *Cluster) Node(id int) *Node {
	for _, n := range c.Nodes {
		if n.ID == id {
			return n
		}
	}
	panic(fmt.Sprintf("BUG: no node %d", id))
}

// Brokers are the nodes that serve clients.
func (c *Cluster) Brokers() []*Node {
	var list []*Node
	for _, n := range c.Nodes {
		if n.Addr != "" {
			list = append(list, n)
		}
	}
	return list
}

// Bootstrap are the addresses of all brokers.
func (c *Cluster) Bootstrap() []string {
	var list []string
	for _, n := range c.Brokers() {
		list = append(list, n.Addr)
	}
	return list
}

// Keep leaves data and logs in place when the cluster is closed.
func (c *Cluster) Keep() { c.keep = true }

// Close kills what still runs and removes the directory, unless it is to be kept.
func (c *Cluster) Close() error {
	var errs []error
	for _, n := range c.Nodes {
		if n.Running() {
			errs = append(errs, n.Kill())
		}
	}
	if !c.keep {
		errs = append(errs, os.RemoveAll(c.Dir))
	}
	return errors.Join(errs...)
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Ports for nodes lie below those that Linux gives to outgoing connections (from 32768 on): a node that is dead for a moment would lose
// one of those to the next client.
const (
	lowestPort  = 15000
	highestPort = 32000
)

// freePorts finds ports of the loopback address that nothing listens on. All are held at once, so that they differ.
func freePorts(n int) (ports []int, err error) {
	for tries := 0; len(ports) < n; tries++ {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		l, listenErr := net.Listen("tcp", local(port))
		if listenErr != nil {
			if tries > 1000 {
				return nil, errors.Join(err, listenErr)
			}
			continue
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		ports = append(ports, port)
	}
	return ports, nil
}
