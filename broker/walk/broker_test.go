package walk

import (
	"fmt"
	"time"

	"cairn/broker/controller"
	"cairn/broker/isr"
	"cairn/internal/ids"
)

// broker is a broker process and its disk: the log, the replicas' hard state and what is in quarantine survive a crash.
type broker struct {
	node       ids.NodeID
	up, linked bool

	epoch      int64  // broker epoch of this process; 0: not registered yet
	seen       uint64 // how far its metadata replica is
	startAt    uint64 // how far that must be before it starts replicas
	lease      time.Time
	registered bool

	log          []entry
	saved        int // durable prefix of log; under log.flush=os a power cut leaves the first synced entries only
	synced, boot int
	// heard is the high watermark that it heard of last, never above its log.
	heard    ids.Offset
	replicas map[ids.ShardID]*replica
	r        *replica // what runs
	// quarantine holds what was cut off the log and may have to be reported as lost.
	quarantine []entry
}

// replica is a broker's member of the Raft group of one generation.
type replica struct {
	b          *broker
	shard      ids.ShardID
	id         ids.ReplicaID
	generation int32
	// first is how much of the log was there when the generation began. Raft sees only what is behind it: its index i is
	// entry first+i-1.
	first    int
	term     ids.Term
	voters   map[ids.ReplicaID]ids.NodeID
	votersAt ids.RaftIndex
	commit   int // like match below, counts entries of the whole log

	// Lost in a crash.
	leads     bool
	match     map[ids.ReplicaID]int
	nonVoters map[ids.ReplicaID]ids.NodeID
	reign     *isr.Leader
	waiting   []request
}

// request is an append that has not been answered.
type request struct {
	place
	id   int
	next ids.Offset
	all  bool // acks=all
}

func (b *broker) end(n int) ids.Offset {
	if n == 0 {
		return 0
	}
	return b.log[n-1].next
}

func (b *broker) answered() {
	if b.r != nil && b.r.reign != nil {
		b.r.reign.Answered()
	}
}

// crash loses what was not saved.
func (w *world) crash(b *broker) {
	w.say("broker %d crashes, log %d saved %d", b.node, len(b.log), b.saved)
	b.up, b.registered = false, false
	b.log = b.log[:b.saved]
	b.heard = min(b.heard, b.end(len(b.log)))
	if b.r != nil {
		b.r.commit = max(b.r.first, min(b.r.commit, len(b.log)))
		b.r.stopLeading()
		b.r = nil
	}
	b.lease = time.Time{}
}

// powerCut loses what was not synced, and the machine starts anew. As the disk was not closed in order, nobody trusts what
// it has.
func (w *world) powerCut(b *broker) {
	w.crash(b)
	b.boot++
	b.saved = min(b.synced, b.saved)
	w.say("broker %d has had a power cut, log %d, was %d", b.node, b.saved, len(b.log))
	b.log, b.heard = b.log[:b.saved], 0
	b.quarantine = nil
	w.exposed, w.acked, w.cutAt = map[int]bool{}, map[place]int{}, w.nextID
}

func (w *world) restart(b *broker) {
	b.up = true
	w.say("broker %d starts", b.node)
}

// registerBroker registers a new process. It starts replicas once its metadata replica is as far as the registration.
func (w *world) registerBroker(b *broker) {
	w.lastInc++
	w.apply(controller.RegisterBroker{
		ID: b.node, Incarnation: ids.UUID{w.lastInc, byte(w.index()), byte(w.index() >> 8)}, Directory: ids.UUID{byte(b.node)},
		LogFlush: w.flush(), BootID: fmt.Sprint(b.boot), Endpoints: []controller.Endpoint{{Name: "PLAINTEXT", Host: "h", Port: 1}},
	})
	b.epoch, b.startAt, b.registered = int64(w.index()), w.index(), true
	w.heard[b.node] = w.now
}

func (w *world) flush() string {
	if w.os {
		return "os"
	}
	return "always"
}

// learn lets the broker's metadata replica go on, and the broker do what the metadata says.
func (w *world) learn(b *broker) {
	if !b.reach() {
		return
	}
	if !b.registered {
		w.registerBroker(b)
	}
	if left := w.index() - b.seen; left > 0 {
		b.seen += 1 + w.rnd.Uint64N(left)
	}
	w.follow(b)
}

// follow brings the broker's replica in line with the image that it has seen.
func (w *world) follow(b *broker) {
	img := w.images[b.seen]
	p := partitionIn(img)
	if b.seen < b.startAt || p.Shard == 0 {
		return
	}
	if r := b.r; r != nil && r.reign != nil {
		if _, over := r.reign.NoteView(w.view(img)); over {
			r.endReign()
		}
	}
	if r := b.r; r != nil && (r.shard != p.Shard || p.NodeOf(r.id) != b.node) {
		w.stop(b)
	}
	switch at := p.ReplicaOf(b.node); {
	case at < 0 && b.r != nil:
		w.stop(b)
		fallthrough
	case at < 0:
		w.cut(b, 0) // a replica that is moved away reports what nobody else has before its data is deleted
	case b.r == nil:
		w.start(b, p)
	}
	w.begin(b, img, p)
}

// stop ends the running replica and waits until it is unloaded: its last save is in.
func (w *world) stop(b *broker) {
	b.saved = len(b.log)
	b.r.stopLeading()
	b.r = nil
}

func (w *world) start(b *broker, p *controller.Partition) {
	id := p.ReplicaIDs[p.ReplicaOf(b.node)]
	if p.Directories[p.ReplicaOf(b.node)] != (ids.UUID{byte(b.node)}) {
		return // not trusted: only the next generation can use it
	}
	if r := b.replicas[p.Shard]; r != nil && r.id == id {
		b.r = r
		return
	}
	members := p.Members()
	if _, founder := members[id]; !founder {
		w.join(b, p, id)
		return
	}
	b.r = &replica{b: b, shard: p.Shard, id: id, generation: p.Generation, first: len(b.log), voters: members}
	b.r.commit = b.r.first
	b.replicas[p.Shard] = b.r
	w.say("broker %d founds generation %d at %d", b.node, p.Generation, b.end(b.r.first))
}

// join: a replica that is no founder finds what its log shares with the registered leader's, puts the rest into quarantine,
// copies what it lacks below the base, and follows as a non-voter.
func (w *world) join(b *broker, p *controller.Partition, id ids.ReplicaID) {
	if p.Leader == ids.NoNode || p.BaseOffset == ids.NoOffset {
		return
	}
	l := w.broker(p.Leader)
	if !w.talk(b, l) || l.r == nil || l.r.shard != p.Shard || l.r.reign == nil || l.r.reign.Epoch() != p.LeaderEpoch {
		return
	}
	first := l.r.first
	k := common(b.log, l.log[:first])
	w.say("broker %d joins generation %d, keeps %d of %d", b.node, p.Generation, k, len(b.log))
	w.cut(b, k)
	b.log = append(b.log, l.log[k:first]...)
	b.saved = first
	b.r = &replica{b: b, shard: p.Shard, id: id, generation: p.Generation, first: first, commit: first, voters: l.r.voters}
	b.replicas[p.Shard] = b.r
}

// cut puts the log behind k into quarantine. What was heard of the high watermark holds for what stays.
func (w *world) cut(b *broker, k int) {
	for _, e := range b.log[k:max(k, b.saved)] {
		if e.id != 0 {
			b.quarantine = append(b.quarantine, e)
		}
	}
	b.log, b.saved, b.synced = b.log[:k], min(b.saved, k), min(b.synced, k)
	b.heard = min(b.heard, b.end(k))
}

// common is how many entries two logs share from their beginning.
func common(a, b []entry) int {
	k := 0
	for k < len(a) && k < len(b) && a[k] == b[k] {
		k++
	}
	return k
}

// begin opens a reign when the image shows this replica as leader of the term in which it leads.
func (w *world) begin(b *broker, img *controller.Image, p *controller.Partition) {
	r := b.r
	if r == nil || !r.leads || r.reign != nil || p.Shard != r.shard || p.Leader != b.node || p.LeaderReplica != r.id ||
		p.LeaderTerm != r.term || b.saved != len(b.log) {
		return
	}
	end := b.end(len(b.log))
	r.reign = isr.New(isr.Config{Self: r.id, LagTimeMax: lagTimeMax, Off: w.off}, w.view(img), end, min(b.heard, end), w.now)
	r.reign.NoteLease(w.leaseOf(b))
	for id, m := range r.match {
		if id != r.id {
			r.reign.NoteProgress(id, b.end(m))
		}
	}
	r.reign.NoteCommitted(b.end(r.commit))
	w.say("broker %d reigns in epoch %d from %d, high watermark %d", b.node, p.LeaderEpoch, end, r.reign.HighWatermark())
	if p.LeaderEpoch == w.partition().LeaderEpoch { // else it is late, and its lease is over or soon will be
		w.checkLeader(b)
	}
}

func (w *world) leaseOf(b *broker) time.Time {
	if w.noLease {
		return w.now.Add(1000 * time.Hour)
	}
	return b.lease
}

func (r *replica) endReign() { r.reign, r.waiting = nil, nil }

func (r *replica) stopLeading() {
	r.leads, r.match, r.nonVoters = false, nil, nil
	r.endReign()
}

// appendRecord is a client's produce.
func (w *world) appendRecord(b *broker) {
	r := b.r
	if !b.up || r == nil || r.reign == nil {
		return
	}
	all := w.rnd.IntN(2) == 0
	if r.reign.CheckAppend(all, w.now) != nil {
		return
	}
	w.nextID++
	offset := b.end(len(b.log))
	at := place{r.reign.Epoch(), offset}
	if other, taken := w.records[at]; taken {
		// A crash before the save frees the offset, but not in the same epoch: the next reign has another.
		w.fail("offset %d of epoch %d is given to record %d and was record %d's", offset, at.epoch, w.nextID, other)
	}
	w.records[at] = w.nextID
	b.append(entry{generation: r.generation, term: r.term, epoch: at.epoch, id: w.nextID})
	r.match[r.id] = len(b.log)
	r.waiting = append(r.waiting, request{at, w.nextID, offset + 1, all})
	w.advance(b)
}

// save makes some of the leader's own log durable.
func (w *world) save(b *broker) {
	if b.up && b.saved < len(b.log) {
		w.saveTo(b, b.saved+1+w.rnd.IntN(len(b.log)-b.saved))
	}
}

func (w *world) saveTo(b *broker, n int) {
	if n <= b.saved {
		return
	}
	b.saved = n
	if b.r != nil && b.r.reign != nil {
		b.r.reign.NoteSaved(b.end(n), w.now)
	}
}

// settle answers clients: it acknowledges what can be, and lets a consumer read.
func (w *world) settle(b *broker) {
	if !b.up || b.r == nil || b.r.reign == nil {
		return
	}
	reign := b.r.reign
	var left []request
	for _, q := range b.r.waiting {
		done, err := reign.Settled(q.next, q.all, w.now)
		switch {
		case !done:
			left = append(left, q)
		case err == nil && q.id > w.cutAt:
			w.acked[q.place] = q.id
			if q.all {
				w.expose(q.id)
			}
		}
	}
	b.r.waiting = left
	if reign.CheckAppend(false, w.now) != nil {
		return
	}
	for _, e := range b.log {
		if e.id != 0 && e.next <= reign.HighWatermark() {
			w.expose(e.id)
		}
	}
}

func (w *world) expose(id int) {
	if !w.exposed[id] && id > w.cutAt {
		w.exposed[id] = true
		w.exposure++
	}
}

// proposeISR sends an AlterPartition if the leader wants one. Its answer comes, some time or other.
func (w *world) proposeISR(b *broker) {
	if !b.reach() || b.r == nil || b.r.reign == nil {
		return
	}
	reign := b.r.reign
	p, ok := reign.Propose(w.now)
	if !ok {
		return
	}
	c := controller.ISRChange{TopicID: topicID, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
	for _, n := range p.ISR {
		c.ISR = append(c.ISR, controller.ISRMember{Node: n, Epoch: -1})
	}
	cmd := controller.AlterPartitions{Broker: b.node, Epoch: b.epoch, Partitions: []controller.ISRChange{c}}
	w.send(func() {
		w.apply(cmd)
		w.send(reign.Answered)
	})
}
