package broker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"cairn/broker/controller"
	"cairn/broker/isr"
	"cairn/internal/ids"
	"cairn/raftgroup"

	"go.uber.org/zap"
)

const (
	// membersEvery is how often leaders look whether their Raft group has the members that the metadata wants.
	membersEvery = 200 * time.Millisecond
	// memberWorkers is how many groups are changed at a time.
	memberWorkers = 8
	// memberWithin bounds one look at a group and one change of it.
	memberWithin = 5 * time.Second
)

// runMembers keeps the members of the Raft groups that are led here in line with the metadata: replicas that join get the
// log first and a vote once they are in sync, and those that are no replicas any more go.
func (m *replicaManager) runMembers(ctx context.Context) {
	ticker := time.NewTicker(membersEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			m.changeMembers(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (m *replicaManager) changeMembers(ctx context.Context) {
	img := m.cfg.Images.Image()
	var due []*partition
	for _, p := range m.partitions() {
		r := p.serving()
		state, ok := img.PartitionOf(p.topicID, p.index)
		if r == nil || !ok || !p.is(state) || state.LeaderEpoch != r.epoch {
			continue
		}
		if !r.membersKnown.Load() || !membersSettled(state) {
			due = append(due, p)
		}
	}
	work := make(chan *partition)
	var wg sync.WaitGroup
	for range min(memberWorkers, len(due)) {
		wg.Go(func() {
			for p := range work {
				m.changeMember(ctx, p)
			}
		})
	}
	for _, p := range due {
		work <- p
	}
	close(work)
	wg.Wait()
}

// membersSettled reports whether all replicas vote and nobody else does, as far as the metadata knows.
func membersSettled(p *controller.Partition) bool {
	return len(p.FormerVoters) == 0 && len(p.Removing) == 0 && len(p.Voters) == len(p.Replicas)
}

// changeMember makes at most one change of p's group, and tells the controller who votes. Who the members are is read once
// in a reign, and after each change: nobody else changes them.
func (m *replicaManager) changeMember(ctx context.Context, p *partition) {
	r := p.serving()
	if r == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, memberWithin)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	if err := m.changeMemberIn(ctx, p, r); err != nil {
		p.debug("members not in line with the metadata yet", zap.Error(err))
	}
}

func (m *replicaManager) changeMemberIn(ctx context.Context, p *partition, r *reign) error {
	group := p.core.Load().group
	members := r.members.Load()
	if members == nil {
		read, err := group.Membership(ctx)
		if err != nil {
			return err
		}
		members = &read
		r.members.Store(members)
	}
	change, ok := p.nextMember(slices.Sorted(maps.Keys(members.Voters)), slices.Sorted(maps.Keys(members.NonVoting)))
	if ok {
		p.debug("member change", zap.Uint8("action", uint8(change.Action)), zap.Uint64("replica", uint64(change.Replica)), zap.Int32("node", int32(change.Node)))
		r.members.Store(nil)
		if err := applyMember(ctx, group, change); err != nil {
			return err
		}
		read, err := group.Membership(ctx)
		if err != nil {
			return err
		}
		members = &read
		r.members.Store(members)
	}
	return m.reportVoters(ctx, p, r, *members)
}

func applyMember(ctx context.Context, group *raftgroup.Group, c isr.MemberChange) error {
	switch c.Action {
	case isr.AddNonVoting:
		return group.AddNonVoting(ctx, c.Replica, c.Node)
	case isr.Promote:
		return group.AddVoter(ctx, c.Replica, c.Node)
	case isr.Remove:
		return group.Remove(ctx, c.Replica)
	}
	panic("BUG: unknown member change")
}

var errVotersRefused = errors.New("the controller refused the voters")

// reportVoters tells the controller who votes, if that is news.
func (m *replicaManager) reportVoters(ctx context.Context, p *partition, r *reign, members raftgroup.Membership) error {
	state, ok := m.cfg.Images.Image().PartitionOf(p.topicID, p.index)
	if !ok || !p.is(state) || state.LeaderEpoch != r.epoch {
		return errNotLeader
	}
	voters := slices.Sorted(maps.Keys(members.Voters))
	if slices.Equal(voters, votersOf(state)) || members.Index <= state.VotersAt {
		r.membersKnown.Store(true)
		return nil
	}
	items, err := m.cfg.Client.ReplicaCommand(ctx, controller.ChangeVoters{
		Broker: m.cfg.NodeID, Epoch: m.cfg.Client.Registration().BrokerEpoch, Partitions: []controller.VotersReport{{
			TopicID: p.topicID, Partition: p.index, LeaderEpoch: r.epoch, At: members.Index, Voters: voters,
		}},
	})
	switch {
	case err != nil:
		return err
	case len(items) != 1 || items[0].Code != 0:
		return errVotersRefused
	}
	r.membersKnown.Store(true)
	return nil
}

// votersOf are the replica ids that vote, as the metadata has them.
func votersOf(p *controller.Partition) []ids.ReplicaID {
	voters := slices.Clone(p.FormerVoters)
	for _, n := range p.Voters {
		voters = append(voters, p.ReplicaIDs[p.ReplicaOf(n)])
	}
	slices.Sort(voters)
	return voters
}
