package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ControllerID is the node id of the first controller that is a node of its own.
const ControllerID = 100

// Cluster is a set of nodes under one directory.
type Cluster struct {
	Dir   string
	Nodes []*Node // brokers in the order of their ids, then the controllers if they are separate

	keep  bool
	taken []io.Closer // the ports
}

// newCluster makes the directory and takes ports. Its parent is CAIRN_TEST_DIR, or that for temporary files.
func newCluster(ports int) (*Cluster, []int, error) {
	dir, err := os.MkdirTemp(os.Getenv("CAIRN_TEST_DIR"), "cairn-")
	if err != nil {
		return nil, nil, err
	}
	c := &Cluster{Dir: dir}
	list, err := c.takePorts(ports)
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return c, list, nil
}

// Single makes one node that is broker and controller, not yet started. props are laid over the usual ones.
func Single(binary string, props map[string]string) (*Cluster, error) {
	c, ports, err := newCluster(3)
	if err != nil {
		return nil, err
	}
	return c, c.add(binary, 1, "broker,controller", "1@"+local(ports[1]), ports, props)
}

// Shape says what a cluster consists of.
type Shape struct {
	Brokers     int // with ids from 1 on
	Controllers int // nodes of their own, with ids from ControllerID on
	// Props are laid over the usual ones of the brokers, ControllerProps over those of the controllers.
	Props, ControllerProps map[string]string
	// Front may put something in front of each node: it gets the node's own address and returns the one by which the other nodes reach it.
	// Clients use the node's own.
	Front func(id int, address string) (string, error)
	// Env are environment variables of the nodes, NAME=value, besides those of this process.
	Env []string
	// FirstPort is where broker 1 listens for clients, the others behind it; 0: on any free port.
	FirstPort int
}

// Three makes brokers 1 to 3 and a controller that is a node of its own, not yet started. props are laid over the usual ones of the brokers.
func Three(binary string, props map[string]string) (*Cluster, error) {
	return New(binary, Shape{Brokers: 3, Controllers: 1, Props: props})
}

// New makes a cluster, not yet started.
func New(binary string, s Shape) (*Cluster, error) {
	c, ports, err := newCluster(4 * (s.Brokers + s.Controllers))
	if err != nil {
		return nil, err
	}
	fronted := func(id int, address string) string {
		if s.Front == nil {
			return address
		}
		front, frontErr := s.Front(id, address)
		err = errors.Join(err, frontErr)
		return front
	}
	var voters []string
	for i := range s.Controllers {
		id := ControllerID + i
		voters = append(voters, fmt.Sprintf("%d@%s", id, fronted(id, local(ports[4*i+1]))))
	}
	quorum := strings.Join(voters, ",")
	for i := range s.Brokers {
		own := ports[4*(s.Controllers+i):]
		if s.FirstPort != 0 {
			own[0] = s.FirstPort + i
			taken, takeErr := takePort(own[0])
			if err = errors.Join(err, takeErr); takeErr == nil {
				c.taken = append(c.taken, taken)
			}
		}
		err = errors.Join(err, c.add(binary, i+1, "broker", quorum, own, s.Props))
		if s.Front != nil && err == nil {
			c.Nodes[i].behind(local(own[3]), fronted(i+1, local(own[3])))
		}
	}
	for i := range s.Controllers {
		err = errors.Join(err, c.add(binary, ControllerID+i, "controller", quorum, ports[4*i:], s.ControllerProps))
	}
	for _, n := range c.Nodes {
		n.Env = s.Env
	}
	return c, err
}

// behind gives a broker a listener of its own for the other nodes, which reach it by the front.
func (n *Node) behind(own, front string) {
	const name = "INTERNAL"
	n.Props["listeners"] += "," + name + "://" + own
	n.Props["advertised.listeners"] = "CLIENT://" + n.Addr + "," + name + "://" + front
	n.Props["inter.broker.listener.name"] = name
	n.Props["listener.security.protocol.map"] += "," + name + ":PLAINTEXT"
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
	for _, port := range c.taken {
		errs = append(errs, port.Close())
	}
	c.taken = nil
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

// takePorts finds ports of the loopback address that nothing listens on, and takes them for this cluster: a name of its own for each is held
// until Close, so that clusters of other processes on the machine, which look at the same moment, find others.
func (c *Cluster) takePorts(n int) (ports []int, err error) {
	for tries := 0; len(ports) < n; tries++ {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		taken, err := takePort(port)
		if err != nil {
			if tries > 1000 {
				return nil, err
			}
			continue
		}
		c.taken = append(c.taken, taken)
		ports = append(ports, port)
	}
	return ports, nil
}

// takePort fails if the port is taken or in use.
func takePort(port int) (taken io.Closer, err error) {
	name, err := net.Listen("unix", fmt.Sprintf("@cairn-port-%d", port)) // in Linux's abstract namespace: it ends with the process
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", local(port))
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		return nil, errors.Join(err, name.Close())
	}
	return name, nil
}
