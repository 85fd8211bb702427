package harness

import (
	"errors"

	"cairn/integration/network"
	"cairn/tools/lab/nodes"
)

// ControllerID is the node id of the first controller that is a node of its own.
const ControllerID = nodes.ControllerID

// ErrNotReady is returned when a node did not come up.
var ErrNotReady = nodes.ErrNotReady

// Cluster, Node and Usage are those of package nodes.
type (
	Cluster = nodes.Cluster
	Node    = nodes.Node
	Usage   = nodes.Usage
	Shape   = nodes.Shape
)

// Single makes one node that is broker and controller, not yet started. props are laid over the usual ones.
func Single(binary string, props map[string]string) (*Cluster, error) {
	return nodes.Single(binary, props)
}

// Three makes brokers 1 to 3 and a controller that is a node of its own, not yet started. props are laid over the usual ones of the brokers.
func Three(binary string, props map[string]string) (*Cluster, error) {
	return nodes.Three(binary, props)
}

// New makes a cluster, not yet started.
func New(binary string, s Shape) (*Cluster, error) { return nodes.New(binary, s) }

// Networked makes a cluster, not yet started, whose nodes reach each other over a network that can be cut. Who closes the cluster closes the
// network after it.
func Networked(binary string, s Shape) (*Cluster, *network.Network, error) {
	net := network.New()
	s.Front = net.Front
	c, err := nodes.New(binary, s)
	if err != nil {
		return c, net, errors.Join(err, net.Close())
	}
	for _, n := range c.Nodes {
		n.Begun = func(pid int) { net.Started(n.ID, pid) }
	}
	return c, net, nil
}
