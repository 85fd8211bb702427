package main

import (
	"math/rand/v2"
	"slices"
	"time"

	"cairn/integration/harness"
	orders "cairn/internal/faults"
)

// machineFaults adds faults of disks and of clocks to half of the plans each. They have a source of chance of their own, so that the rest of a
// plan is what it is without them.
func (p *planner) machineFaults(seed uint64) {
	p.Rand = rand.New(rand.NewPCG(seed, 0xd15c))
	if p.IntN(2) == 0 {
		p.diskFaults()
	}
	if p.IntN(2) == 0 {
		p.clockSteps()
	}
}

// diskFaults has disks get full, slow or broken, one after the other, and be well again after a while. A process with a broken one ends by itself
// and is started again then.
func (p *planner) diskFaults() {
	for at := quiet + p.between(0, 2000); at < p.end; at += p.between(1500, 5000) {
		n := []int{p.node()}
		end := at + p.between(500, 4000)
		switch k := p.IntN(8); {
		case k < 3:
			p.add(Action{At: at, Op: opFull, Nodes: n, Left: p.Int64N(512 << 10), Told: p.IntN(2) == 0})
		case k < 5:
			p.add(Action{At: at, Op: opLag, Nodes: n, Delay: p.between(2, []int{10, 100, 1000}[p.IntN(3)])})
		default:
			p.add(Action{At: at, Op: opFail, Nodes: n, On: []string{orders.FailWrite, orders.FailSync}[p.IntN(2)]})
		}
		p.add(Action{At: end, Op: opMend, Nodes: n}, Action{At: end, Op: opStart, Nodes: n})
	}
}

// clockSteps sets the clock of a node, of all brokers, of all controllers or of all nodes, by seconds to hours, forwards or back, and right again
// unless the next step comes first.
func (p *planner) clockSteps() {
	all := []int{1, 2, 3, harness.ControllerID, harness.ControllerID + 1, harness.ControllerID + 2}
	for at := quiet + p.between(0, 2000); at < p.end; at += p.between(1000, 5000) {
		nodes := [][]int{{p.node()}, {p.node()}, {p.node()}, all[:brokers], all[brokers:], all}[p.IntN(6)]
		by := time.Duration(1+p.IntN([]int{10, 600, 3 * 3600}[p.IntN(3)])) * time.Second
		if p.IntN(2) == 0 {
			by = -by
		}
		p.add(Action{At: at, Op: opClock, Nodes: slices.Clone(nodes), Delay: by})
		if p.IntN(3) > 0 {
			p.add(Action{At: at + p.between(500, 4000), Op: opClock, Nodes: slices.Clone(nodes)})
		}
	}
}
