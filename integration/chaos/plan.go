package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"cairn/integration/harness"
)

// Plan is a round: a cluster and what is done to it.
type Plan struct {
	Seed       uint64        `json:"seed"`
	Length     time.Duration `json:"length"` // of the faults, about: with another one the seed has another plan
	Flush      string        `json:"flush"`  // log.flush
	Partitions int32         `json:"partitions"`
	MinISR     int           `json:"minIsr"`
	Session    time.Duration `json:"session"` // broker.session.timeout.ms
	Lag        time.Duration `json:"lag"`     // replica.lag.time.max.ms
	Actions    []Action      `json:"actions"` // in the order of At
	// Patience is how long what has to come about after the faults is waited for, where the round need not pass; 0: as long as it may take.
	Patience time.Duration `json:"patience,omitempty"`
}

// within is how long something is waited for that may take so long.
func (p Plan) within(most time.Duration) time.Duration { return cmp.Or(p.Patience, most) }

// Op is what an action does.
type Op string

// The actions. In brackets what they use.
const (
	opKill    Op = "kill"    // SIGKILL [Nodes]
	opTerm    Op = "term"    // SIGTERM, and wait for the end [Nodes]
	opStart   Op = "start"   // [Nodes]
	opFreeze  Op = "freeze"  // SIGSTOP [Nodes]
	opThaw    Op = "thaw"    // SIGCONT [Nodes]
	opSplit   Op = "split"   // cut these nodes off from the others [Nodes]
	opCut     Op = "cut"     // cut one direction [From, To]
	opSlow    Op = "slow"    // delay all that the nodes send and get [Nodes, Delay]
	opHeal    Op = "heal"    // make the network whole [Reset]
	opElect   Op = "elect"   // preferred leaders for all partitions
	opUnclean Op = "unclean" // an unclean election of the partition [Partition]
	opCreate  Op = "create"  // another topic

	opFull  Op = "full"      // the disk takes no more than so many bytes [Nodes, Left, Told: the file system says so]
	opLag   Op = "slow disk" // each write and each sync takes longer [Nodes, Delay]
	opFail  Op = "fail"      // each write, or each sync, fails, which is to end the process [Nodes, On]
	opMend  Op = "mend"      // the disk is well [Nodes]
	opClock Op = "clock"     // the wall clock is set wrong by so much, or right again [Nodes, Delay]

	// Plans that are to provoke something wait for what leads to it, for no longer than Within; those of seeds do not.
	opAwaitAcks Op = "await acknowledgements" // each partition acknowledges an acks=all record that is sent from now on [Within]
	opAwaitLead Op = "await leadership"       // the node leads all partitions [Nodes, Within]
)

// Action is one step of a plan.
type Action struct {
	At        time.Duration `json:"at"`
	Op        Op            `json:"op"`
	Nodes     []int         `json:"nodes,omitempty"`
	From      int           `json:"from,omitempty"`
	To        int           `json:"to,omitempty"`
	Delay     time.Duration `json:"delay,omitempty"`
	Reset     bool          `json:"reset,omitempty"`
	Partition int32         `json:"partition"`
	Left      int64         `json:"left,omitempty"`
	Told      bool          `json:"told,omitempty"`
	On        string        `json:"on,omitempty"`
	Within    time.Duration `json:"within,omitempty"`
}

func (a Action) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%5.1f s %s", a.At.Seconds(), a.Op)
	switch a.Op {
	case opCut:
		fmt.Fprintf(&b, " %d to %d", a.From, a.To)
	case opSlow:
		fmt.Fprintf(&b, " %v by %v", a.Nodes, a.Delay)
	case opHeal:
		fmt.Fprintf(&b, " (reset: %t)", a.Reset)
	case opUnclean:
		fmt.Fprintf(&b, " partition %d", a.Partition)
	case opElect, opCreate:
	case opFull:
		fmt.Fprintf(&b, " %v with %d bytes left (told: %t)", a.Nodes, a.Left, a.Told)
	case opLag:
		fmt.Fprintf(&b, " %v by %v", a.Nodes, a.Delay)
	case opFail:
		fmt.Fprintf(&b, " %v at each %s", a.Nodes, a.On)
	case opClock:
		fmt.Fprintf(&b, " %v by %v", a.Nodes, a.Delay)
	case opAwaitAcks:
		fmt.Fprintf(&b, " for %v at most", a.Within)
	case opAwaitLead:
		fmt.Fprintf(&b, " %v for %v at most", a.Nodes, a.Within)
	default:
		fmt.Fprintf(&b, " %v", a.Nodes)
	}
	return b.String()
}

// loses reports whether the plan asks for unclean elections.
func (p Plan) loses() bool {
	return slices.ContainsFunc(p.Actions, func(a Action) bool { return a.Op == opUnclean })
}

const (
	brokers     = 3
	controllers = 3
	quiet       = time.Second // before the first fault
)

// planner makes a plan.
type planner struct {
	*rand.Rand
	plan Plan
	end  time.Duration // of the faults
}

// newPlan makes the plan of a seed, with faults for about so long.
func newPlan(seed uint64, faults time.Duration) Plan {
	p := planner{rand.New(rand.NewPCG(seed, 0xca1)), Plan{Seed: seed, Length: faults}, quiet + faults}
	p.plan.Flush = []string{"always", "always", "os"}[p.IntN(3)]
	p.plan.Partitions = 2 + p.Int32N(4)
	p.plan.MinISR = 1 + p.IntN(2)
	p.plan.Session = time.Duration(1500+p.IntN(2000)) * time.Millisecond
	p.plan.Lag = time.Duration(1000+p.IntN(2000)) * time.Millisecond
	if p.IntN(3) == 0 { // the losing of records takes a story of its own
		p.loseRecords()
	} else {
		for at := quiet; at < p.end; at += p.between(300, 2500) {
			p.fault(at)
		}
		if p.IntN(2) == 0 {
			p.networkFaults()
		}
	}
	p.machineFaults(seed)
	slices.SortStableFunc(p.plan.Actions, func(a, b Action) int { return cmp.Compare(a.At, b.At) })
	return p.plan
}

func (p *planner) add(a ...Action) { p.plan.Actions = append(p.plan.Actions, a...) }

// between is a time in milliseconds.
func (p *planner) between(low, high int) time.Duration {
	return time.Duration(low+p.IntN(high-low)) * time.Millisecond
}

func (p *planner) broker() int { return 1 + p.IntN(brokers) }

func (p *planner) controller() int { return harness.ControllerID + p.IntN(controllers) }

// node is a broker, or less often a controller.
func (p *planner) node() int {
	if p.IntN(4) == 0 {
		return p.controller()
	}
	return p.broker()
}

// fault adds one fault of processes that begins then, with its end.
func (p *planner) fault(at time.Duration) {
	short := at + p.between(50, 1500)
	long := at + p.between(500, 5000)
	switch k := p.IntN(20); {
	case k < 6:
		n := p.node()
		p.add(Action{At: at, Op: opKill, Nodes: []int{n}}, Action{At: long, Op: opStart, Nodes: []int{n}})
	case k < 8:
		n := p.node()
		p.add(Action{At: at, Op: opKill, Nodes: []int{n}}, Action{At: at + p.between(1, 100), Op: opStart, Nodes: []int{n}})
	case k < 12:
		n := p.node()
		p.add(Action{At: at, Op: opFreeze, Nodes: []int{n}}, Action{At: long, Op: opThaw, Nodes: []int{n}})
	case k < 14:
		n := p.node()
		p.add(Action{At: at, Op: opFreeze, Nodes: []int{n}}, Action{At: short, Op: opThaw, Nodes: []int{n}})
	case k < 15:
		all := []int{1, 2, 3}
		p.add(Action{At: at, Op: opKill, Nodes: all}, Action{At: short, Op: opStart, Nodes: all})
	case k < 17:
		for i := range brokers {
			n := []int{1 + i}
			p.add(Action{At: at + time.Duration(i)*1500*time.Millisecond, Op: opTerm, Nodes: n}, Action{At: at + time.Duration(i)*1500*time.Millisecond + 200*time.Millisecond, Op: opStart, Nodes: n})
		}
	case k < 18:
		p.add(Action{At: at, Op: opElect})
	case k < 19:
		p.add(Action{At: at, Op: opCreate})
	default:
		two := p.Perm(controllers)[:2]
		n := []int{harness.ControllerID + two[0], harness.ControllerID + two[1]}
		p.add(Action{At: at, Op: opFreeze, Nodes: n}, Action{At: short, Op: opThaw, Nodes: n})
	}
}

// networkFaults adds faults of the network, one after the other.
func (p *planner) networkFaults() {
	for at := quiet; at < p.end; at += p.between(500, 2000) {
		switch p.IntN(6) {
		case 0:
			p.add(Action{At: at, Op: opSplit, Nodes: []int{p.node()}})
		case 1: // a leader with a follower, or with a controller
			a := p.broker()
			p.add(Action{At: at, Op: opSplit, Nodes: []int{a, []int{a%brokers + 1, p.controller()}[p.IntN(2)]}})
		case 2: // one controller alone with each broker
			p.add(Action{At: at, Op: opSplit, Nodes: []int{p.controller(), p.controller()}})
		case 3, 4:
			from := p.node()
			for to := from; to == from; {
				if to = p.node(); to != from {
					p.add(Action{At: at, Op: opCut, From: from, To: to})
				}
			}
			if p.IntN(2) == 0 { // deaf: it sends, and hears nothing
				n := p.broker()
				for _, from := range []int{1, 2, 3, harness.ControllerID, harness.ControllerID + 1, harness.ControllerID + 2} {
					if from != n {
						p.add(Action{At: at, Op: opCut, From: from, To: n})
					}
				}
			}
		default:
			p.add(Action{At: at, Op: opSlow, Nodes: []int{p.node()}, Delay: p.between(5, 400)})
		}
		at += p.between(300, 5000)
		p.add(Action{At: at, Op: opHeal, Reset: p.IntN(2) == 0})
	}
}

// loseRecords has brokers fall out of the in-sync replica set one after the other, and then one of the first ones lead: what the last ones
// took is lost.
func (p *planner) loseRecords() {
	at := quiet
	for at < p.end {
		order := p.Perm(brokers)
		first, second, last := 1+order[0], 1+order[1], 1+order[2]
		out, back := opFreeze, opThaw
		if p.IntN(2) == 0 {
			out, back = opKill, opStart
		}
		apart := p.plan.Session + p.between(500, 1500)
		p.add(Action{At: at, Op: out, Nodes: []int{first}})
		if p.IntN(2) == 0 { // both at once
			p.add(Action{At: at, Op: out, Nodes: []int{second}})
		} else {
			at += p.between(100, 1500)
			p.add(Action{At: at, Op: out, Nodes: []int{second}})
		}
		at += apart
		p.add(Action{At: at, Op: []Op{opKill, opFreeze}[p.IntN(2)], Nodes: []int{last}})
		at += p.plan.Session + p.between(200, 1000)
		p.add(Action{At: at, Op: back, Nodes: []int{first}})
		at += p.between(1500, 2500)
		for partition := range p.plan.Partitions {
			if p.IntN(4) > 0 {
				p.add(Action{At: at, Op: opUnclean, Partition: partition})
			}
		}
		at += p.between(1000, 3000)
		p.add(Action{At: at, Op: back, Nodes: []int{second}})
		at += p.between(100, 2000)
		p.add(Action{At: at, Op: opThaw, Nodes: []int{last}}, Action{At: at, Op: opStart, Nodes: []int{last}})
		at += p.between(1000, 3000)
	}
}
