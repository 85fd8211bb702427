package raftgroup

import (
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

func TestSurvivorsTakeTurnsAndLeadersAreSpread(t *testing.T) {
	voters := map[ids.ReplicaID]ids.NodeID{11: 1, 12: 2, 13: 3}
	first := map[ids.ReplicaID]int{}
	for shard := ids.ShardID(1); shard <= 100; shard++ {
		seen := map[int]bool{}
		for _, r := range []ids.ReplicaID{11, 13} {
			rank, ok := survivorRank(&localReplica{shard: shard, self: r}, voters, 2)
			if !ok || rank > 1 || seen[rank] {
				t.Fatalf("shard %d: replica %d has rank %d, %v", shard, r, rank, ok)
			}
			seen[rank] = true
			if rank == 0 {
				first[r]++
			}
		}
	}
	if first[11] != 50 || first[13] != 50 {
		t.Errorf("first in turn: %v", first)
	}
	if _, ok := survivorRank(&localReplica{shard: 1, self: 14}, voters, 2); ok {
		t.Error("a replica without a vote has a turn")
	}
}

func TestCampaignWaitsForAnElectionUnderWay(t *testing.T) {
	now := time.Now()
	c := &campaign{from: leadership{1, 5}, sentTerm: 5, retry: skippedRetry}
	for i := range 3 { // Raft ignores it: repeated soon
		if !c.attempt(now, 5) {
			t.Fatalf("attempt %d is not made", i)
		}
		if d := c.next.Sub(now); d > 8*skippedRetry {
			t.Fatalf("next attempt after %v", d)
		}
	}
	if c.attempt(now, 6) {
		t.Fatal("an election is disturbed")
	}
	if d := c.next.Sub(now); d < electionRetry/2 {
		t.Fatalf("the election is given %v", d)
	}
	if !c.attempt(now, 8) {
		t.Fatal("one whose elections fail keeps this replica from its turn")
	}
	if c.attempt(now, 9) {
		t.Fatal("its own election is disturbed")
	}
	if !c.attempt(now, 9) {
		t.Fatal("an election without a winner is not followed by another")
	}
	// A later turn comes while the first survivor's election is under way.
	late := &campaign{from: leadership{1, 5}, dead: 1, sentTerm: 5, retry: skippedRetry}
	if late.attempt(now, 6) {
		t.Fatal("the second in turn disturbs the first")
	}
}

func TestCampaignSettles(t *testing.T) {
	lr := newLocalReplica(7, 2, nil, func(ids.ReplicaID, ids.Term) {})
	lr.announce(1, 5)
	own, dead := &campaign{from: leadership{1, 5}}, &campaign{from: leadership{1, 5}, dead: 1}
	step := func(leader ids.ReplicaID, term ids.Term, wantOwn, wantDead bool) {
		t.Helper()
		lr.announce(leader, term)
		if got := own.settled(lr); got != wantOwn {
			t.Errorf("leader %d of term %d: campaign settled %v", leader, term, got)
		}
		if got := dead.settled(lr); got != wantDead {
			t.Errorf("leader %d of term %d: failover settled %v", leader, term, got)
		}
	}
	step(1, 5, false, false)
	step(0, 6, false, false)
	step(1, 6, true, false) // the dead one leads again, they say
	step(3, 7, true, true)
	step(2, 8, true, true)
	lr.announce(0, 8) // stale: this replica leads term 8
	if _, ok := lr.leading(); !ok {
		t.Error("a stale announcement took the leadership away")
	}
	lr.announce(3, 7)
	if _, ok := lr.leading(); !ok {
		t.Error("an announcement of a past term took the leadership away")
	}
	lr.markUnloaded()
	if !(&campaign{}).settled(lr) {
		t.Error("an unloaded replica campaigns")
	}
}

func TestALongerLogStandsAndARefusedCandidateMakesRoom(t *testing.T) {
	now := time.Now()
	c := &campaign{from: leadership{1, 5}, dead: 1, sentTerm: 5, retry: skippedRetry, next: now.Add(time.Minute)}
	c.react(now, true)
	if d := c.next.Sub(now); d > failOverStagger/10 || !c.attempt(c.next, 7) {
		t.Fatalf("a replica with the longer log stands after %v", d)
	}
	c.react(now, false)
	if d := c.next.Sub(now); d < failOverStagger {
		t.Fatalf("a refused candidate stands again after %v", d)
	}
}

func TestACandidateIsMadeAFollowerFirst(t *testing.T) {
	kinds := func(c *campaign, leader ids.ReplicaID, term ids.Term) (kinds []raftpb.MessageType) {
		lr := newLocalReplica(7, 2, nil, func(ids.ReplicaID, ids.Term) {})
		lr.announce(leader, term)
		for _, m := range c.request(nil, lr) {
			kinds = append(kinds, m.Type)
		}
		return kinds
	}
	for _, c := range []struct {
		what    string
		from    leadership
		leader  ids.ReplicaID
		term    ids.Term
		request int
	}{
		{"follower of the dead leader", leadership{1, 5}, 1, 5, 1},
		{"candidate of this failover", leadership{1, 5}, 0, 6, 2},
		{"candidate of an earlier one", leadership{0, 6}, 0, 6, 2},
	} {
		if got := kinds(&campaign{from: c.from, dead: 1}, c.leader, c.term); len(got) != c.request || got[len(got)-1] != raftpb.TimeoutNow {
			t.Errorf("%s is sent %v", c.what, got)
		}
	}
}
