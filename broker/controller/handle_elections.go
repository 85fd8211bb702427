package controller

import (
	"context"
	"slices"
	"time"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// electionPoll is how often an election that waits for a lease to run out, or whose step was refused as out of date, is
// planned anew.
const electionPoll = 50 * time.Millisecond

// election is one partition of an ElectLeaders request.
type election struct {
	topic  string
	index  int32
	done   bool
	result ItemResult // final once done, until then why it is not
	// What was started, and is waited for; both nil before.
	generation *NewGeneration
	transfer   *LeaderTransfer
}

func (e *election) finish(r ItemResult) { e.done, e.result = true, r }

// electLeaders answers ElectLeaders, when all elections are over or the request's time is.
func (c *Controller) electLeaders(ctx context.Context, req *kmsg.ElectLeadersRequest) *kmsg.ElectLeadersResponse {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	elections := wantedElections(c.store.Image(), req)
	if code, refused := c.notActive(); refused {
		resp.ErrorCode = code
		for _, e := range elections { // version 0 has no code for the whole
			e.finish(refuseItem(kerr.NotController, "This node is not the active controller."))
		}
		fillElections(resp, elections, false)
		return resp
	}
	kind := PreferredElection
	if req.Version >= 1 {
		kind = ElectionType(req.ElectionType)
	}
	c.holdElections(ctx, kind, elections)
	fillElections(resp, elections, req.Topics == nil)
	return resp
}

// wantedElections lists the partitions that the request names, each once; all of them if its list is null.
func wantedElections(img *Image, req *kmsg.ElectLeadersRequest) []*election {
	type key struct {
		topic string
		index int32
	}
	var list []*election
	if req.Topics == nil {
		for _, t := range img.TopicList() {
			for i := range t.Partitions {
				list = append(list, &election{topic: t.Name, index: int32(i)})
			}
		}
		return list
	}
	seen := map[key]bool{}
	for _, t := range req.Topics {
		for _, i := range t.Partitions {
			if k := (key{t.Topic, i}); !seen[k] {
				seen[k] = true
				list = append(list, &election{topic: t.Topic, index: i})
			}
		}
	}
	return list
}

// holdElections starts the elections and waits until each has its leader or has failed, at most until shortly before the
// end of ctx, so that the answer still arrives.
func (c *Controller) holdElections(ctx context.Context, kind ElectionType, elections []*election) {
	ctx, cancel := answerBefore(ctx)
	defer cancel()
	changed, stop := c.store.Watch()
	defer stop()
	poll := time.NewTicker(electionPoll)
	defer poll.Stop()
	for {
		if err := c.stepElections(ctx, kind, elections); err != nil {
			code, message := errorCode(err)
			for _, e := range elections {
				if !e.done {
					e.finish(ItemResult{Code: code, Message: message})
				}
			}
		}
		if !slices.ContainsFunc(elections, func(e *election) bool { return !e.done }) {
			return
		}
		select {
		case <-changed:
		case <-poll.C:
		case <-ctx.Done():
			for _, e := range elections {
				e.timeOut()
			}
			return
		}
	}
}

// answerBefore leaves a tenth of the request's time for the answer's way.
func answerBefore(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)/10))
}

func (e *election) timeOut() {
	switch {
	case e.done:
	case e.generation != nil || e.transfer != nil:
		e.finish(refuseItem(kerr.RequestTimedOut, "The election has begun, but the new leader has not registered yet; it may still do so."))
	default:
		e.finish(e.result)
	}
}

// stepElections looks at what was started and starts what can be. An error concerns all that is not done.
func (c *Controller) stepElections(ctx context.Context, kind ElectionType, elections []*election) error {
	if _, refused := c.notActive(); refused {
		return errNotActive
	}
	img := c.store.Image()
	var leaderless []*Partition
	for _, e := range elections {
		e.observe(img)
		if p, ok := img.Partition(e.topic, e.index); ok && e.waits() && img.Leader(p) == ids.NoNode {
			leaderless = append(leaderless, p)
		}
	}
	if len(leaderless) > 0 {
		c.askEnds(ctx, img, leaderless)
	}
	var generations NextGenerations
	var transfers TransferLeaders
	var seeds, takers []*election
	c.withFacts(func(img *Image, f Facts) {
		for _, e := range elections {
			switch step := e.plan(img, f, kind); {
			case step.Generation != nil:
				generations.Partitions, seeds = append(generations.Partitions, *step.Generation), append(seeds, e)
			case step.Transfer != nil:
				transfers.Partitions, takers = append(transfers.Partitions, *step.Transfer), append(takers, e)
			}
		}
	})
	if err := c.startElections(ctx, generations, seeds, func(e *election, i int) { e.generation = &generations.Partitions[i] }); err != nil {
		return err
	}
	return c.startElections(ctx, transfers, takers, func(e *election, i int) { e.transfer = &transfers.Partitions[i] })
}

// startElections proposes the command, whose parts are those of the elections, and has started note which were accepted.
// One that is out of date is planned again.
func (c *Controller) startElections(ctx context.Context, cmd Command, of []*election, started func(*election, int)) error {
	if len(of) == 0 {
		return nil
	}
	res, err := c.propose(ctx, cmd)
	if err != nil {
		return err
	}
	for i, e := range of {
		r := ItemResult{Code: res.Code, Message: res.Message}
		if i < len(res.Items) {
			r = res.Items[i]
		}
		switch r.Code {
		case 0:
			c.log.Info("election begun", zap.String("topic", e.topic), zap.Int32("partition", e.index), zap.String("step", cmd.kind()))
			started(e, i)
		case kerr.InvalidUpdateVersion.Code, kerr.FencedLeaderEpoch.Code, kerr.IneligibleReplica.Code:
			e.result = r
		default:
			e.finish(r)
		}
	}
	return nil
}

// waits reports whether the election has to be planned.
func (e *election) waits() bool { return !e.done && e.generation == nil && e.transfer == nil }

// plan returns the step that the election needs now, none while it has to wait or is over.
func (e *election) plan(img *Image, f Facts, kind ElectionType) Election {
	if !e.waits() {
		return Election{}
	}
	step, bad := Elect(img, f, kind, e.topic, e.index)
	switch {
	case bad.Code == kerr.LeaderNotAvailable.Code: // until a lease is over, or the preferred replica has its vote
		e.result = bad
		if kind == PreferredElection {
			e.result.Code = kerr.PreferredLeaderNotAvailable.Code
		}
		return Election{}
	case bad.Code != 0:
		e.finish(bad)
		return Election{}
	}
	if p, ok := img.Partition(e.topic, e.index); ok && step.Generation != nil && seeded(p, step.Generation.Seed) {
		e.generation = &NewGeneration{From: p.Generation - 1, Seed: step.Generation.Seed} // somebody has begun it
		return Election{}
	}
	return step
}

// observe finishes an election whose step has come to its end.
func (e *election) observe(img *Image) {
	if e.done || e.waits() {
		return
	}
	p, ok := img.Partition(e.topic, e.index)
	switch {
	case !ok:
		e.finish(refuseItem(kerr.UnknownTopicOrPartition, "The topic was deleted."))
	case e.generation != nil && p.Generation > e.generation.From && img.Leader(p) != ids.NoNode:
		e.finish(ItemResult{})
	case e.transfer != nil && img.Leader(p) == e.transfer.To:
		e.finish(ItemResult{})
	case e.transfer != nil && (p.Transfer == nil || p.Transfer.To != e.transfer.To):
		e.finish(refuseItem(kerr.PreferredLeaderNotAvailable, "Failed to elect leader for partition under strategy PREFERRED: "+
			"broker %d did not take over in time", e.transfer.To))
	}
}

// fillElections puts the results into the response, by topic in their order. In an answer to a request for all partitions
// those that needed no election are left out, but not their topics.
func fillElections(resp *kmsg.ElectLeadersResponse, elections []*election, all bool) {
	at := map[string]int{}
	for _, e := range elections {
		i, ok := at[e.topic]
		if !ok {
			i = len(resp.Topics)
			at[e.topic] = i
			t := kmsg.NewElectLeadersResponseTopic()
			t.Topic = e.topic
			resp.Topics = append(resp.Topics, t)
		}
		if all && e.result.Code == kerr.ElectionNotNeeded.Code {
			continue
		}
		p := kmsg.NewElectLeadersResponseTopicPartition()
		p.Partition = e.index
		setError(e.result, &p.ErrorCode, &p.ErrorMessage)
		resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, p)
	}
}
