package assignor

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"cairn/internal/ids"

	"pgregory.net/rapid"
)

func topicID(n int) (id ids.UUID) {
	binary.BigEndian.PutUint32(id[:], uint32(n))
	return id
}

// drawGroup draws a group without history. alike: all members subscribe to the same topics.
func drawGroup(t *rapid.T, alike bool) Group {
	g := Group{Topics: map[ids.UUID]int32{}}
	topics := rapid.IntRange(1, 6).Draw(t, "topics")
	for i := range topics {
		g.Topics[topicID(i)] = rapid.Int32Range(1, 12).Draw(t, "partitions")
	}
	for i := range rapid.IntRange(1, 7).Draw(t, "members") {
		m := Member{ID: fmt.Sprintf("m%d", i)}
		if rapid.IntRange(0, 3).Draw(t, "static") == 0 {
			m.InstanceID = fmt.Sprintf("i%d", rapid.IntRange(0, 100).Draw(t, "instance"))
		}
		for n := range topics + 1 { // the last one does not exist
			if alike || rapid.Bool().Draw(t, "subscribed") {
				m.Topics = append(m.Topics, topicID(n))
			}
		}
		g.Members = append(g.Members, m)
	}
	return g
}

// follow makes what was given out the members' history.
func follow(g *Group, out map[string]Partitions) {
	for i := range g.Members {
		g.Members[i].Assigned = out[g.Members[i].ID]
	}
}

// requireComplete fails unless each partition of a subscribed topic has one owner, a subscriber, and nothing else has.
func requireComplete(t interface{ Fatalf(string, ...any) }, g Group, out map[string]Partitions) {
	owner := map[ids.UUID]map[int32]string{}
	for member, parts := range out {
		at := slices.IndexFunc(g.Members, func(m Member) bool { return m.ID == member })
		if at < 0 {
			t.Fatalf("%s is no member", member)
		}
		for id, list := range parts {
			if !slices.Contains(g.Members[at].Topics, id) || len(list) == 0 || !slices.IsSorted(list) {
				t.Fatalf("%s got %v of %v", member, list, id)
			}
			for _, n := range list {
				if other, taken := owner[id][n]; taken || n < 0 || n >= g.Topics[id] {
					t.Fatalf("%v-%d: %s and %s", id, n, other, member)
				}
				if owner[id] == nil {
					owner[id] = map[int32]string{}
				}
				owner[id][n] = member
			}
		}
	}
	for id, partitions := range g.Topics {
		wanted := slices.ContainsFunc(g.Members, func(m Member) bool { return slices.Contains(m.Topics, id) })
		if wanted && int32(len(owner[id])) != partitions {
			t.Fatalf("%v: %d of %d partitions have owners", id, len(owner[id]), partitions)
		}
	}
}

func count(p Partitions) (n int) {
	for _, list := range p {
		n += len(list)
	}
	return n
}

// kept is how many partitions members have of those that they had.
func kept(g Group, out map[string]Partitions) (n int) {
	for _, m := range g.Members {
		for id, list := range m.Assigned {
			for _, p := range list {
				if slices.Contains(out[m.ID][id], p) {
					n++
				}
			}
		}
	}
	return n
}

func requireEven(t interface{ Fatalf(string, ...any) }, g Group, out map[string]Partitions) {
	least, most := 1<<30, 0
	for _, m := range g.Members {
		least, most = min(least, count(out[m.ID])), max(most, count(out[m.ID]))
	}
	if most > least+1 {
		t.Fatalf("between %d and %d partitions", least, most)
	}
}

func TestUniformIsCompleteEvenAndStickyAmongEquals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t, true)
		out := uniform(g)
		requireComplete(t, g, out)
		requireEven(t, g, out)
		total := 0
		for _, p := range out {
			total += count(p)
		}
		for range 6 {
			follow(&g, out)
			best := change(t, &g, total)
			out = uniform(g)
			requireComplete(t, g, out)
			requireEven(t, g, out)
			if got := kept(g, out); got < best {
				t.Fatalf("%d partitions stayed, %d could", got, best)
			}
		}
	})
}

// change has a member leave or join, or nothing happen, and gives how many partitions can stay where they are while
// loads are even: all that do not exceed a member's share.
func change(t *rapid.T, g *Group, total int) int {
	switch rapid.IntRange(0, 2).Draw(t, "change") {
	case 0:
		if len(g.Members) > 1 {
			at := rapid.IntRange(0, len(g.Members)-1).Draw(t, "leaves")
			g.Members = slices.Delete(g.Members, at, at+1)
		}
	case 1:
		m := Member{ID: fmt.Sprintf("n%d", rapid.IntRange(0, 1<<30).Draw(t, "joins")), Topics: g.Members[0].Topics}
		if !slices.ContainsFunc(g.Members, func(o Member) bool { return o.ID == m.ID }) {
			g.Members = append(g.Members, m)
		}
	}
	quota, extras, best := total/len(g.Members), total%len(g.Members), 0
	for _, m := range g.Members {
		n := count(m.Assigned)
		best += min(n, quota)
		if n > quota && extras > 0 {
			best++
			extras--
		}
	}
	return best
}

func TestUniformWithDifferentSubscriptionsLeavesNoMoveThatHelps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t, false)
		var out map[string]Partitions
		for range 4 {
			out = uniform(g)
			requireComplete(t, g, out)
			for _, from := range g.Members {
				for id := range out[from.ID] {
					for _, to := range g.Members {
						if slices.Contains(to.Topics, id) && count(out[from.ID]) > count(out[to.ID])+1 {
							t.Fatalf("%s has %d and could give of %v to %s with %d", from.ID, count(out[from.ID]), id, to.ID, count(out[to.ID]))
						}
					}
				}
			}
			follow(&g, out)
			if again := uniform(g); !reflect.DeepEqual(again, out) {
				t.Fatalf("nothing changed, yet %v became %v", out, again)
			}
			at := rapid.IntRange(0, len(g.Members)-1).Draw(t, "changes")
			g.Members[at].Topics = drawGroup(t, false).Members[0].Topics
		}
	})
}

func TestRangeDividesEachTopicInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t, rapid.Bool().Draw(t, "alike"))
		out := ranges(g)
		requireComplete(t, g, out)
		for id, partitions := range g.Topics {
			next := int32(0)
			for _, m := range slices.SortedFunc(slices.Values(g.Members), byInstance) {
				for _, n := range out[m.ID][id] {
					if n != next {
						t.Fatalf("%v: %s has %d where %d of %d is next", id, m.ID, n, next, partitions)
					}
					next++
				}
			}
		}
	})
}

func TestRangeGivesCopartitionedTopicsTogether(t *testing.T) {
	both := []ids.UUID{topicID(1), topicID(2)}
	g := Group{
		Topics:  map[ids.UUID]int32{both[0]: 5, both[1]: 5},
		Members: []Member{{ID: "c", Topics: both}, {ID: "a", Topics: both}, {ID: "z", InstanceID: "1", Topics: both}},
	}
	want := map[string]Partitions{
		"z": {both[0]: {0, 1}, both[1]: {0, 1}},
		"a": {both[0]: {2, 3}, both[1]: {2, 3}},
		"c": {both[0]: {4}, both[1]: {4}},
	}
	if got := ranges(g); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

func TestAssignorsDoNotDependOnTheOrderOfMembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t, rapid.Bool().Draw(t, "alike"))
		for _, name := range []string{Uniform, Range} {
			assign, _ := Lookup(name)
			want := assign(g)
			mixed := Group{Topics: maps.Clone(g.Topics), Members: slices.Clone(g.Members)}
			rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed"))).Shuffle(len(mixed.Members), func(i, j int) {
				mixed.Members[i], mixed.Members[j] = mixed.Members[j], mixed.Members[i]
			})
			if got := assign(mixed); name == Uniform && !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %v and %v", name, want, got)
			}
		}
	})
}

func TestNothingToDivide(t *testing.T) {
	for _, name := range []string{Uniform, Range} {
		assign, ok := Lookup(name)
		if !ok {
			t.Fatal(name)
		}
		for _, g := range []Group{
			{},
			{Members: []Member{{ID: "a"}}},
			{Members: []Member{{ID: "a", Topics: []ids.UUID{topicID(1)}}}},
			{Topics: map[ids.UUID]int32{topicID(1): 3}},
		} {
			if out := assign(g); len(out) != 0 {
				t.Errorf("%s of %v: %v", name, g, out)
			}
		}
	}
	if _, ok := Lookup("sticky"); ok {
		t.Error("found an assignor that is not there")
	}
}
