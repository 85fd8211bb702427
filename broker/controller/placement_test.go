package controller

import (
	"math/rand/v2"
	"testing"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"
)

func brokersIn(racks ...string) *Image {
	img := NewImage()
	for i, r := range racks {
		b := &Broker{ID: ids.NodeID(i + 1)}
		if r != "" {
			b.Rack = &r
		}
		img.Brokers[b.ID] = b
	}
	return img
}

func TestPlacementSpreadsLeadersReplicasAndRacks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		racks := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c"}), 1, 9).Draw(t, "racks")
		img := brokersIn(racks...)
		different := map[string]bool{}
		for _, r := range racks {
			different[r] = true
		}
		factor := rapid.IntRange(1, len(racks)).Draw(t, "factor")
		rounds := rapid.IntRange(1, 5).Draw(t, "rounds")
		seed := rapid.Uint64().Draw(t, "seed")
		partitions, bad := newPlacement(img, rand.New(rand.NewPCG(seed, 1))).place(rounds*len(racks), factor)
		if bad.Code != 0 {
			t.Fatal(bad)
		}
		leads := map[ids.NodeID]int{}
		for _, replicas := range partitions {
			leads[replicas[0]]++
			seen, used := map[ids.NodeID]bool{}, map[string]bool{}
			for _, n := range replicas {
				seen[n], used[img.Brokers[n].rack()] = true, true
			}
			if len(replicas) != factor || len(seen) != factor || len(used) != min(factor, len(different)) {
				t.Fatalf("replicas %v of %d in racks %v", replicas, factor, used)
			}
		}
		for _, b := range img.BrokerList() {
			if leads[b.ID] != rounds {
				t.Fatalf("broker %d leads %d of %d rounds: %v", b.ID, leads[b.ID], rounds, partitions)
			}
		}
	})
}

func TestPlacementBalancesFollowers(t *testing.T) {
	img := brokersIn("", "", "", "")
	partitions, _ := newPlacement(img, rand.New(rand.NewPCG(1, 1))).place(12, 3)
	held := map[ids.NodeID]int{}
	pairs := map[[2]ids.NodeID]int{}
	for _, r := range partitions {
		for _, n := range r {
			held[n]++
		}
		pairs[[2]ids.NodeID{r[0], r[1]}]++
	}
	for n, h := range held {
		if h != 9 {
			t.Errorf("broker %d holds %d replicas of 36 on 4", n, h)
		}
	}
	if len(pairs) != 12 {
		t.Errorf("the first follower of a leader is always the same: %v", pairs)
	}
}

func TestPlacementPassesOverBrokersOutOfService(t *testing.T) {
	img := brokersIn("", "", "", "")
	img.Brokers[1].Fenced, img.Brokers[2].ShuttingDown = true, true
	rng := rand.New(rand.NewPCG(1, 1))
	partitions, bad := newPlacement(img, rng).place(4, 2)
	if bad.Code != 0 {
		t.Fatal(bad)
	}
	for _, r := range partitions {
		for _, n := range r {
			if n < 3 {
				t.Errorf("replica on %d", n)
			}
		}
	}
	if _, bad := newPlacement(img, rng).place(1, 4); bad.Code != kerr.InvalidReplicationFactor.Code {
		t.Errorf("four replicas on three brokers: %+v", bad)
	}
	if _, bad := newPlacement(NewImage(), rng).place(1, 1); bad.Code != kerr.InvalidReplicationFactor.Code {
		t.Errorf("no broker: %+v", bad)
	}
}

// As in Kafka, a topic can be created while a broker is down; here as long as a majority of its replicas is alive.
func TestPlacementPutsFollowersOnFencedBrokersAtNeed(t *testing.T) {
	img := brokersIn("", "", "", "", "")
	img.Brokers[1].Fenced, img.Brokers[4].Fenced = true, true
	rng := rand.New(rand.NewPCG(1, 1))
	for factor := 1; factor <= 5; factor++ {
		partitions, bad := newPlacement(img, rng).place(6, factor)
		if bad.Code != 0 {
			t.Fatalf("factor %d: %+v", factor, bad)
		}
		for _, replicas := range partitions {
			seen := map[ids.NodeID]bool{}
			for i, n := range replicas {
				seen[n] = true
				if img.Brokers[n].Fenced != (i >= 3) {
					t.Errorf("factor %d: %v has the fenced ones not at its end", factor, replicas)
				}
			}
			if len(replicas) != factor || len(seen) != factor {
				t.Errorf("factor %d: %v", factor, replicas)
			}
		}
	}
	img.Brokers[2].Fenced = true
	for factor, want := range map[int]int16{3: 0, 4: kerr.InvalidReplicationFactor.Code, 5: kerr.InvalidReplicationFactor.Code} {
		if _, bad := newPlacement(img, rng).place(1, factor); bad.Code != want {
			t.Errorf("factor %d with two of five alive: %+v, want code %d", factor, bad, want)
		}
	}
}

func TestParseVoters(t *testing.T) {
	got, err := ParseVoters("1@a:1, 20@[::1]:2")
	if err != nil || len(got) != 2 || got[1] != "a:1" || got[20] != "[::1]:2" {
		t.Errorf("%v, %v", got, err)
	}
	for _, s := range []string{"", "1", "a:1", "1@a", "1@a:", "-1@a:1", "1@a:1,1@b:2", "1048576@a:1", "x@a:1", "1@a:1,"} {
		if got, err := ParseVoters(s); err == nil {
			t.Errorf("%q: %v", s, got)
		}
	}
	if m := VoterMembers([]ids.NodeID{0, 5}); len(m) != 2 || m[5] != 5 || m[VoterReplica(0)] != 0 {
		t.Errorf("members %v", m)
	}
}
