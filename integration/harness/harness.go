package harness

import "cairn/tools/lab/nodes"

// ControllerID is the node id of the separate controller that Three makes.
const ControllerID = nodes.ControllerID

// ErrNotReady is returned when a node did not come up.
var ErrNotReady = nodes.ErrNotReady

// Cluster, Node and Usage are those of package nodes.
type (
	Cluster = nodes.Cluster
	Node    = nodes.Node
	Usage   = nodes.Usage
)

// Single makes one node that is broker and controller, not yet started. props are laid over the usual ones.
func Single(binary string, props map[string]string) (*Cluster, error) {
	return nodes.Single(binary, props)
}

// Three makes brokers 1 to 3 and a controller that is a node of its own, not yet started. props are laid over the usual ones of the brokers.
func Three(binary string, props map[string]string) (*Cluster, error) {
	return nodes.Three(binary, props)
}
