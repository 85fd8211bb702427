package controller

import (
	"context"

	"cairn/internal/ids"
	"cairn/wire/private"

	"github.com/twmb/franz-go/pkg/kerr"
)

// previewElections answers PreviewElections: what ElectLeaders would answer for each partition now, and what would be lost.
// Live brokers are asked how far they are; the rest is as of their last heartbeat.
func (c *Controller) previewElections(ctx context.Context, req *private.ElectionsRequest) *private.ElectionsResponse {
	resp := &private.ElectionsResponse{}
	if code, refused := c.notActive(); refused {
		resp.Body.Status = private.Status{Code: code, Message: "This node is not the active controller."}
		return resp
	}
	img := c.store.Image()
	elections := previewed(img, req.Body)
	var asked []*Partition
	for _, e := range elections {
		if p, ok := img.Partition(e.topic, e.index); ok {
			asked = append(asked, p)
		}
	}
	fresh := c.askEnds(ctx, img, asked)
	c.withFacts(func(img *Image, f Facts) {
		for _, e := range elections {
			v := c.previewElection(img, f, ElectionType(req.Body.Type), e)
			for i := range v.Replicas {
				r := &v.Replicas[i]
				p, ok := img.Partition(e.topic, e.index)
				r.Live = ok && fresh[ids.NodeID(r.Broker)][p.ID]
			}
			resp.Body.Partitions = append(resp.Body.Partitions, v)
		}
	})
	return resp
}

// previewed lists the partitions that the query names, all if none.
func previewed(img *Image, q private.ElectionQuery) []*election {
	var list []*election
	for _, t := range q.Topics {
		for _, i := range t.Partitions {
			list = append(list, &election{topic: t.Topic, index: i})
		}
	}
	if len(q.Topics) > 0 {
		return list
	}
	for _, t := range img.TopicList() {
		for i := range t.Partitions {
			list = append(list, &election{topic: t.Name, index: int32(i)})
		}
	}
	return list
}

// previewElection is called with the facts locked.
func (c *Controller) previewElection(img *Image, f Facts, kind ElectionType, e *election) private.ElectionPreview {
	v := private.ElectionPreview{Topic: e.topic, Partition: e.index, Leader: int32(ids.NoNode), LeaderEpoch: int32(ids.NoEpoch), Elects: int32(ids.NoNode)}
	step, bad := Elect(img, f, kind, e.topic, e.index)
	v.Outcome = private.Status{Code: bad.Code, Message: bad.Message}
	p, ok := img.Partition(e.topic, e.index)
	if !ok {
		return v
	}
	v.Leader, v.LeaderEpoch = int32(img.Leader(p)), int32(p.LeaderEpoch)
	v.ISR, v.ELR, v.LastKnownELR = numbers(p.InSync), numbers(p.ELR), numbers(p.LastKnownELR)
	if bad.Code == kerr.LeaderNotAvailable.Code { // it would be held once the lease is over
		if g, ok := uncleanGeneration(img, f, partitionKey{img.Topics[e.topic].ID, e.index}, p); ok {
			step.Generation = &g
		}
	}
	switch {
	case step.Generation != nil:
		v.Elects, v.Clean = int32(step.Generation.Seed), !step.Generation.Unclean
	case step.Transfer != nil:
		v.Elects, v.Clean = int32(step.Transfer.To), true
	}
	for _, r := range PreviewElection(f, img, p) {
		w := c.previewReplica(f, p, r)
		if w.Broker == v.Elects {
			v.Loses = w.WouldLose
		}
		v.Replicas = append(v.Replicas, w)
	}
	return v
}

func (c *Controller) previewReplica(f Facts, p *Partition, r Preview) private.ReplicaPreview {
	w := private.ReplicaPreview{
		Broker: int32(r.Node), Alive: r.Alive, InISR: r.InISR, InELR: r.InELR, Known: r.Known,
		LeaderEpoch: int32(ids.NoEpoch), LogEnd: int64(ids.NoOffset), LastAppendMs: -1,
	}
	for _, l := range r.Lost {
		w.WouldLose = append(w.WouldLose, private.LostRange{LeaderEpoch: int32(l.LeaderEpoch), From: int64(l.From), To: int64(l.To)})
	}
	if r.Known {
		w.LeaderEpoch, w.LogEnd, w.LastAppendMs = int32(r.LeaderEpoch), int64(r.End), r.AppendMs
		w.AsOfMs = c.gathered.asOfLocked(p.ID, r.Node, r.LogEnd)
		w.AgeMs = max(f.Now.UnixMilli()-w.AsOfMs, 0)
	}
	return w
}
