package controller

import (
	"context"
	"sync"
	"time"

	"cairn/broker/topicconfig"
	"cairn/internal/clock"
	"cairn/internal/ids"

	"go.uber.org/zap"
)

// askWithin bounds the wait for a broker's answer about its log ends.
const askWithin = 200 * time.Millisecond

// gathering is what the active controller knows besides the metadata: the log ends that brokers report, and since when
// partitions have no leader. It starts anew in each term.
type gathering struct {
	mu   sync.Mutex
	term ids.Term // guarded by mu; of the rest
	ends Ends     // guarded by mu
	// reported is when a broker's ends were last confirmed as a whole, by this controller's wall clock in ms. Guarded by mu.
	reported map[ids.NodeID]int64
	watch    Watch                         // guarded by mu
	observed *Image                        // guarded by mu; what watch has seen last
	since    map[ids.PartitionID]time.Time // guarded by mu; what watch said to it
	trimmed  *Image                        // guarded by mu; ends holds nothing that was not in it
}

// inTermLocked forgets what belongs to another term.
func (g *gathering) inTermLocked(term ids.Term) {
	if g.term == term && g.reported != nil {
		return
	}
	g.term, g.ends, g.reported = term, Ends{}, map[ids.NodeID]int64{}
	g.watch, g.observed, g.since = Watch{}, nil, nil
}

// withFacts calls use with the newest image and the facts that go with it. Decide, Elect and PreviewElection may be called
// there; nothing of the facts may be kept.
func (c *Controller) withFacts(use func(*Image, Facts)) {
	c.mu.Lock()
	term := c.activeTerm
	leases := make(map[ids.NodeID]time.Time, len(c.sessions))
	for n, s := range c.sessions {
		leases[n] = s.leased.Add(c.cfg.SessionTimeout)
	}
	c.mu.Unlock()
	g, now := &c.gathered, clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inTermLocked(term)
	img := c.store.Image()
	if g.observed != img {
		g.observed, g.since = img, g.watch.Observe(img, now)
	}
	use(img, Facts{
		Now: now, Ends: &g.ends, Leaderless: g.since, LeaseEnds: leases, Unclean: func(topic string) bool { return c.unclean(img, topic) },
		ElectionGrace: c.cfg.ElectionGrace, TransferTimeout: c.cfg.TransferTimeout, ImbalancePercent: c.cfg.ImbalancePercent,
	})
}

// forgetLeaderless gives partitions for which a step was taken the whole of the election grace again.
func (c *Controller) forgetLeaderless(partitions ...ids.PartitionID) {
	g := &c.gathered
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, id := range partitions {
		g.watch.Forget(id)
	}
	g.observed = nil
}

// unclean is unclean.leader.election.enable of a topic: its own, the cluster's, or this node's property.
func (c *Controller) unclean(img *Image, topic string) bool {
	e, _ := topicconfig.ResolveOne("unclean.leader.election.enable", topicconfig.Layers{
		Topic: img.TopicConfigs(topic), Cluster: img.ClusterConfigs(), Static: c.cfg.Static,
	})
	return e.Value == "true"
}

// noteReported keeps the ends that a broker sent with a heartbeat: all that changed since its last one. complete: it has
// told all it has. It returns the term in which they count: another controller does not know them.
func (c *Controller) noteReported(node ids.NodeID, ends []PartitionEnd, complete bool) ids.Term {
	c.mu.Lock()
	term := c.activeTerm
	c.mu.Unlock()
	now, img := clock.Now().UnixMilli(), c.store.Image()
	for i := range ends {
		ends[i].AsOfMs = now
	}
	g := &c.gathered
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inTermLocked(term)
	g.noteLocked(img, node, ends)
	if complete {
		g.reported[node] = now
	}
	return term
}

// noteLocked keeps ends of partitions that there are, so that what is kept is bounded by the metadata.
func (g *gathering) noteLocked(img *Image, node ids.NodeID, ends []PartitionEnd) {
	known := ends[:0:0]
	for _, e := range ends {
		if t, i, ok := img.PartitionByID(e.Partition); ok && t.Partitions[i].ReplicaOf(node) >= 0 {
			known = append(known, e)
		}
	}
	g.ends.Note(node, known)
	if g.trimmed != img {
		g.trimmed = img
		g.ends.Trim(img)
	}
}

// asOfLocked is when the broker last confirmed that end, which is known.
func (g *gathering) asOfLocked(id ids.PartitionID, node ids.NodeID, end LogEnd) int64 {
	if _, ok := g.ends.ends[id][node]; !ok {
		return end.AsOfMs
	}
	return max(end.AsOfMs, g.reported[node])
}

// unsavedEnds is what NoteEnds is to carry before the broker is fenced.
func (c *Controller) unsavedEnds(img *Image, node ids.NodeID) []PartitionEnd {
	g := &c.gathered
	g.mu.Lock()
	defer g.mu.Unlock()
	ends := g.ends.Unsaved(img, node)
	for i := range ends {
		ends[i].AsOfMs = g.asOfLocked(ends[i].Partition, node, ends[i].LogEnd)
	}
	return ends
}

// askEnds asks the live brokers of the partitions how far their replicas reach, notes what they answer within askWithin, and
// returns who answered for which: what it does not know by then is as the last heartbeat said.
func (c *Controller) askEnds(ctx context.Context, img *Image, partitions []*Partition) map[ids.NodeID]map[ids.PartitionID]bool {
	fresh := map[ids.NodeID]map[ids.PartitionID]bool{}
	if c.cfg.AskEnds == nil {
		return fresh
	}
	asked := map[ids.NodeID][]ids.PartitionID{}
	for _, p := range partitions {
		for _, n := range p.Replicas {
			if img.Usable(n) {
				asked[n] = append(asked[n], p.ID)
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex // guards fresh
	for n, list := range asked {
		b := img.Brokers[n]
		wg.Go(func() {
			ends, err := c.cfg.AskEnds(ctx, b, list)
			if err != nil {
				c.log.Debug("broker does not tell its log ends", zap.Int32("broker", int32(b.ID)), zap.Error(err))
				return
			}
			c.noteReported(b.ID, ends, false)
			mu.Lock()
			defer mu.Unlock()
			fresh[b.ID] = map[ids.PartitionID]bool{}
			for _, e := range ends {
				fresh[b.ID][e.Partition] = true
			}
		})
	}
	wg.Wait()
	return fresh
}
