package walk

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"cairn/broker/controller"
	"cairn/broker/internal/rules"
	"cairn/broker/isr"
	"cairn/internal/ids"
)

// Times of the walk: short, so that everything happens in a few thousand steps.
const (
	sessionTimeout = 2 * time.Second
	lagTimeMax     = 3 * time.Second
	electionGrace  = 500 * time.Millisecond
	maxStep        = 20 * time.Millisecond
)

const topicName = "t"

var topicID = ids.UUID{1}

// setup is what a walk is run with.
type setup struct {
	seed     uint64
	replicas int
	minimum  int
	// moves: reassignments happen too.
	moves bool
	// os: log.flush=os, and power cuts that lose what the page cache held. What was exposed and acknowledged counts anew
	// after each: one cut may take the only copy.
	os bool
	// deaf: followers hear nothing of the high watermark, so a new leader's begins anew.
	deaf    bool
	unclean bool // unclean elections may happen; what is exposed counts anew after each
	off     rules.Off
	// The rules that the walk itself keeps, as the runtime would.
	staleMin bool // 11: the leader takes ISR and minimum from two positions of the metadata log
	noLease  bool // 8: the lease is not looked at
	// More that the runtime has to see to.
	earlyUnfence bool // a fenced broker is unfenced before its metadata shows it that it was fenced
	noWait       bool // an unclean election does not wait for the leases of fenced brokers
}

// entry is a log entry. Raft's own ones have no id and take no offset.
type entry struct {
	generation int32
	term       ids.Term
	epoch      ids.LeaderEpoch
	id         int
	next       ids.Offset // log end after it
}

// place is where a record was acknowledged.
type place struct {
	epoch  ids.LeaderEpoch
	offset ids.Offset
}

// world is one partition, its brokers and the controller, which is always up.
type world struct {
	setup
	rnd     *rand.Rand
	now     time.Time
	brokers []*broker
	net     []func() // messages under way, delivered in any order

	images []*controller.Image // images[i] is the one at index i of the metadata log
	heard  map[ids.NodeID]time.Time
	ends   controller.Ends
	watch  controller.Watch

	records  map[place]int // every record ever appended
	acked    map[place]int
	exposed  map[int]bool
	nextID   int
	cutAt    int // the last record before the last power cut
	lastInc  byte
	trace    []string
	exposure int // records exposed over the whole walk
}

// violation is what a walk panics with.
type violation string

func (w *world) fail(f string, a ...any) { panic(violation(fmt.Sprintf(f, a...))) }

func (w *world) say(f string, a ...any) {
	if len(w.trace) >= 400 {
		w.trace = append(w.trace[:0], w.trace[200:]...)
	}
	w.trace = append(w.trace, fmt.Sprintf("%7d ms  ", w.now.Sub(time.Unix(0, 0)).Milliseconds())+fmt.Sprintf(f, a...))
}

func newWorld(s setup) *world {
	w := &world{
		setup: s, rnd: rand.New(rand.NewPCG(s.seed, 1)), now: time.Unix(0, 0),
		heard:   map[ids.NodeID]time.Time{},
		records: map[place]int{}, acked: map[place]int{}, exposed: map[int]bool{},
	}
	w.images = append(w.images, controller.NewImage())
	w.apply(controller.Claim{Node: 1, ClusterID: "walk"})
	var replicas []ids.NodeID
	for i := range s.replicas {
		b := &broker{node: ids.NodeID(i + 1), up: true, linked: true, replicas: map[ids.ShardID]*replica{}}
		w.brokers = append(w.brokers, b)
		replicas = append(replicas, b.node)
		w.registerBroker(b)
		w.apply(controller.ChangeBrokers{Changes: []controller.BrokerChange{{ID: b.node, Epoch: b.epoch, Action: controller.Unfence}}})
	}
	w.apply(controller.CreateTopics{Topics: []controller.NewTopic{{
		Name: topicName, ID: topicID, Partitions: [][]ids.NodeID{replicas},
		Configs: map[string]string{"min.insync.replicas": fmt.Sprint(s.minimum)},
	}}})
	for _, b := range w.brokers {
		b.seen = w.index()
		w.follow(b)
	}
	return w
}

func (w *world) img() *controller.Image { return w.images[len(w.images)-1] }
func (w *world) index() uint64          { return uint64(len(w.images) - 1) }

// partition is the controller's present state.
func (w *world) partition() *controller.Partition { return partitionIn(w.img()) }

func partitionIn(img *controller.Image) *controller.Partition {
	p, ok := img.Partition(topicName, 0)
	if !ok {
		return &controller.Partition{Leader: ids.NoNode, LeaderEpoch: ids.NoEpoch}
	}
	return p
}

// apply commits a command. Now and then it takes the way through its encoding, and the image through a snapshot.
func (w *world) apply(c controller.Command) controller.Result {
	p := controller.Proposal{Term: 1, Command: c}
	before := w.img()
	if w.rnd.IntN(50) == 0 {
		var err error
		if p, err = controller.DecodeCommand(controller.EncodeCommand(p)); err != nil {
			w.fail("command does not come back: %v", err)
		}
		snapshot, _ := controller.EncodeSnapshot(before)
		if before, err = controller.DecodeSnapshot(snapshot); err != nil {
			w.fail("snapshot does not come back: %v", err)
		}
	}
	img, res := controller.ApplyWithout(w.off, before, w.index()+1, p)
	w.images = append(w.images, img)
	was, is := partitionIn(before), partitionIn(img)
	if is.LeaderEpoch < was.LeaderEpoch || is.PartitionEpoch < was.PartitionEpoch {
		w.fail("an epoch went back: %+v, then %+v", was, is)
	}
	if is.Shard != 0 && w.off == 0 {
		w.checkState(img, is)
	}
	if is.PartitionEpoch != was.PartitionEpoch && is.Shard != 0 {
		w.say("%T: generation %d leader %d epoch %d isr %v elr %v voters %v base %d unclean %v", c, is.Generation, is.Leader, is.LeaderEpoch,
			is.InSync, is.ELR, is.Voters, is.BaseOffset, is.Recovering)
		if is.Recovering && is.Generation != was.Generation {
			w.exposed = map[int]bool{} // an unclean election may lose anything, and says so
		}
	}
	return res
}

// checkState: what holds of the controller's state at every position of the metadata log.
func (w *world) checkState(img *controller.Image, p *controller.Partition) {
	bad := ""
	inISR := func(n ids.NodeID) bool { return slices.Contains(p.InSync, n) }
	switch {
	case len(p.ReplicaIDs) != len(p.Replicas) || len(p.Directories) != len(p.Replicas):
		bad = "replicas, ids and directories do not match"
	case slices.ContainsFunc(slices.Concat(p.InSync, p.ELR, p.Voters, p.Adding, p.Removing), func(n ids.NodeID) bool { return p.ReplicaOf(n) < 0 }):
		bad = "somebody is no replica"
	case slices.ContainsFunc(p.ELR, inISR):
		bad = "ISR and ELR overlap"
	case slices.ContainsFunc(p.InSync, func(n ids.NodeID) bool { return !img.Usable(n) }):
		bad = "a fenced broker is in sync"
	case len(p.InSync) >= img.MinISR(topicName, p) && len(p.ELR) > 0:
		bad = "an ELR at the minimum"
	case p.Leader != ids.NoNode && (!inISR(p.Leader) || p.BaseOffset == ids.NoOffset):
		bad = "the leader is not in sync, or its generation has no base"
	case len(p.Voters)+len(p.FormerVoters) == 0:
		bad = "nobody votes"
	}
	if bad != "" {
		w.fail("%s: %+v", bad, p)
	}
}

// applyItem is apply for a command of one part; it returns that part's code.
func (w *world) applyItem(c controller.Command) int16 {
	res := w.apply(c)
	if res.Code != 0 || len(res.Items) == 0 {
		return res.Code
	}
	return res.Items[0].Code
}

// send puts a message under way.
func (w *world) send(f func()) {
	w.net = append(w.net, f)
	if len(w.net) > 300 {
		w.deliver()
	}
}

// deliver lets one message arrive; one in twenty arrives again later.
func (w *world) deliver() {
	if len(w.net) == 0 {
		return
	}
	i := w.rnd.IntN(len(w.net))
	f := w.net[i]
	if w.rnd.IntN(20) > 0 {
		w.net[i] = w.net[len(w.net)-1]
		w.net = w.net[:len(w.net)-1]
	}
	f()
}

// talk reports whether two brokers reach each other; reach whether one reaches the controller.
func (w *world) talk(a, b *broker) bool {
	return a.up && b.up && (a == b || a.linked && b.linked)
}
func (b *broker) reach() bool { return b.up && b.linked }

func (w *world) broker(n ids.NodeID) *broker { return w.brokers[n-1] }
func (w *world) anyBroker() *broker          { return w.brokers[w.rnd.IntN(len(w.brokers))] }

// view is what the leader on b is told of the partition. Without rule 11 the minimum may come from another position.
func (w *world) view(img *controller.Image) isr.View {
	v := img.View(img.Topics[topicName], partitionIn(img))
	if w.staleMin && w.rnd.IntN(2) == 0 {
		at := w.images[w.rnd.IntN(len(w.images))]
		if t := at.Topics[topicName]; t != nil {
			v.MinISR = at.MinISR(topicName, t.Partitions[0])
		}
	}
	return v
}

// checkLeader: a registered leader has everything that was exposed.
func (w *world) checkLeader(b *broker) {
	have := map[int]bool{}
	for _, e := range b.log {
		have[e.id] = true
	}
	for id := range w.exposed {
		if !have[id] {
			w.fail("record %d was exposed and is missing on registered leader %d", id, b.node)
		}
	}
}

// step is one random step.
func (w *world) step() {
	w.now = w.now.Add(time.Duration(w.rnd.IntN(int(maxStep))))
	b := w.anyBroker()
	switch p := w.rnd.IntN(1000); {
	case p < 110:
		w.appendRecord(b)
	case p < 300:
		w.replicate(b, w.anyBroker())
	case p < 580:
		w.deliver()
	case p < 610:
		w.save(b)
		if w.rnd.IntN(10) == 0 {
			b.synced = b.saved
		}
	case p < 650:
		w.settle(b)
	case p < 690:
		w.elect(b)
	case p < 730:
		w.reportLeader(b)
	case p < 765:
		w.proposeISR(b)
	case p < 768:
		b.answered()
	case p < 860:
		w.learn(b)
	case p < 920:
		w.heartbeat(b)
	case p < 930:
		w.changeMember(b)
	case p < 938:
		w.reportLosses(b)
	case p < 942:
		w.retractLosses(b)
	case p < 952:
		w.fenceExpired()
	case p < 955:
		w.fenceAnybody(b)
	case p < 963:
		w.decide()
	case p < 965:
		w.anyGeneration(b)
	case p < 967:
		w.electUnclean()
	case p < 969:
		w.changeMinimum(1 + w.rnd.IntN(3))
	case p < 970:
		w.shutDown(b)
	case p < 971:
		w.reassign()
	case p < 975:
		w.handOver(b)
	case p < 978:
		b.linked = false
	case p < 990:
		b.linked = true
	default:
		w.crashOrRestart(b)
	}
}

func (w *world) crashOrRestart(b *broker) {
	switch {
	case b.up && w.rnd.IntN(4) > 0:
	case b.up && w.os && w.rnd.IntN(2) == 0:
		w.powerCut(b)
	case b.up:
		w.crash(b)
	default:
		w.restart(b)
	}
}
