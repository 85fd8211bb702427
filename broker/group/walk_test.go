package group

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// walker does at random what clients, clocks and brokers do, to a few groups of a few members.
type walker struct {
	*world
	rng *rand.Rand
	ids map[string][]string // member ids that were told, by group
	gen map[string]int32    // generations that were told
	// open are the requests without an answer; each must get exactly one.
	open map[int]string
	next int
	// committed are the offsets that were acknowledged, by group and partition: they only ever grow here.
	committed map[string]int64
	step      int
}

// TestWalkKeepsReplicasAlike walks at random. After each step a replica that has the log alone must be in the same
// state, deadlines have timers, and what the state must never be is not.
func TestWalkKeepsReplicasAlike(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := &walker{
				world: newWorld(t), rng: rand.New(rand.NewPCG(seed, 5)), ids: map[string][]string{}, gen: map[string]int32{},
				open: map[int]string{}, committed: map[string]int64{},
			}
			w.cfg.OffsetsRetention, w.cfg.OffsetsCheck, w.cfg.GroupMaxSize = time.Hour, time.Minute, 4
			w.elect()
			w.expire()
			for w.step = range 400 {
				w.walk()
				if err := w.check(); err != nil {
					t.Fatalf("seed %d step %d: %v", seed, w.step, err)
				}
				if w.step%10 == 0 {
					w.checkCompacted(seed)
				}
			}
			w.refuse = nil
			w.pass(2 * newMemberJoinTimeout)
			if len(w.open) > 0 {
				t.Fatalf("seed %d: without an answer: %v", seed, w.open)
			}
			for id, g := range w.m.groups {
				if g.classic != nil && g.classic.state != stateEmpty {
					t.Errorf("seed %d: group %s is %v long after its members fell silent", seed, id, g.classic.state)
				}
			}
		})
	}
}

// asked notes a request, and returns what notes its answer.
func (w *walker) asked(what string) func() {
	w.next++
	n := w.next
	w.open[n] = what
	return func() {
		if _, ok := w.open[n]; !ok {
			w.t.Errorf("step %d: a second answer to request %d, %s", w.step, n, what)
		}
		delete(w.open, n)
	}
}

func (w *walker) pick(list []string) string {
	if len(list) == 0 || w.rng.IntN(20) == 0 {
		return "nobody"
	}
	return list[max(len(list)-1-w.rng.IntN(5), 0)]
}

func (w *walker) walk() {
	g := fmt.Sprintf("g%d", w.rng.IntN(3))
	switch n := w.rng.IntN(100); {
	case n < 30:
		w.joinAtRandom(g)
	case n < 50:
		w.syncAtRandom(g)
	case n < 60:
		w.do(func(now time.Time, fx *coordinator.Effects) {
			req := kmsg.NewPtrHeartbeatRequest()
			req.Group, req.MemberID, req.Generation = g, w.pick(w.ids[g]), w.gen[g]
			done := w.asked("heartbeat")
			w.m.Heartbeat(Client{}, req, now, fx, func(*kmsg.HeartbeatResponse, error) { done() })
		})
	case n < 66:
		w.do(func(now time.Time, fx *coordinator.Effects) {
			req := kmsg.NewPtrLeaveGroupRequest()
			req.Version, req.Group, req.MemberID = 2, g, w.pick(w.ids[g])
			done := w.asked("leave")
			w.m.LeaveGroup(Client{}, req, now, fx, func(*kmsg.LeaveGroupResponse, error) { done() })
		})
	case n < 78:
		w.commitAtRandom(g)
	case n < 84:
		w.marker(int64(w.rng.IntN(3)), w.rng.IntN(2) == 0)
		w.expire()
	case n < 94:
		w.pass(time.Duration(w.rng.IntN(8000)) * time.Millisecond)
	case n < 96:
		w.m.Resigned()
		w.elect()
		w.expire()
	case n < 98:
		w.refuse = nil
		if w.rng.IntN(2) == 0 {
			w.refuse = coordinator.ErrUnavailable
		}
	default:
		w.do(func(now time.Time, fx *coordinator.Effects) {
			done := w.asked("delete")
			w.m.DeleteGroup(g, now, fx, func(e *Error, _ bool, err error) {
				done()
				if e == nil && err == nil {
					for key := range w.committed {
						if strings.HasPrefix(key, g+" ") {
							delete(w.committed, key)
						}
					}
				}
			})
		})
	}
}

func (w *walker) joinAtRandom(g string) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.ProtocolType = int16(w.rng.IntN(10)), g, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 6000+int32(w.rng.IntN(10))*1000, 1000+int32(w.rng.IntN(10))*1000
	for _, name := range []string{"a", "b", "c"} {
		if w.rng.IntN(4) > 0 {
			req.Protocols = append(req.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: []byte{byte(w.rng.IntN(2))}})
		}
	}
	if w.rng.IntN(3) == 0 {
		instance := fmt.Sprintf("i%d", w.rng.IntN(3))
		req.InstanceID = &instance
	}
	if w.rng.IntN(2) == 0 {
		req.MemberID = w.pick(w.ids[g])
	}
	done := w.asked(fmt.Sprintf("join of %q", req.MemberID))
	w.do(func(now time.Time, fx *coordinator.Effects) {
		w.m.JoinGroup(Client{ID: "c"}, req, now, fx, func(r *kmsg.JoinGroupResponse, err error) {
			done()
			switch {
			case err != nil:
			case r.ErrorCode == 0:
				if r.Generation < w.gen[g] && slices.Contains(w.ids[g], r.MemberID) && w.m.groups[g] != nil {
					w.t.Logf("generation %d after %d: the group began anew", r.Generation, w.gen[g])
				}
				w.gen[g] = r.Generation
				w.ids[g] = append(w.ids[g], r.MemberID)
			case r.ErrorCode == kerr.MemberIDRequired.Code:
				w.ids[g] = append(w.ids[g], r.MemberID)
			}
		})
	})
}

func (w *walker) syncAtRandom(g string) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation = g, w.pick(w.ids[g]), w.gen[g]
	for _, id := range w.ids[g] {
		req.GroupAssignment = append(req.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: []byte(id)})
	}
	done := w.asked("sync of " + req.MemberID)
	w.do(func(now time.Time, fx *coordinator.Effects) {
		w.m.SyncGroup(Client{}, req, now, fx, func(r *kmsg.SyncGroupResponse, err error) { done() })
	})
}

func (w *walker) commitAtRandom(g string) {
	partition, offset := int32(w.rng.IntN(2)), int64(w.step)
	if w.rng.IntN(3) == 0 {
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.Group, req.ProducerID = g, int64(w.rng.IntN(3))
		req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "u", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Partition: partition, Offset: offset}}}}
		done := w.asked("transactional commit")
		w.do(func(now time.Time, fx *coordinator.Effects) {
			w.m.TxnOffsetCommit(req, now, fx, func(*kmsg.TxnOffsetCommitResponse, error) { done() })
		})
		return
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 9, g, w.pick(w.ids[g]), w.gen[g]
	if w.rng.IntN(3) == 0 {
		req.MemberID, req.Generation = "", -1
	}
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: partition, Offset: offset}}}}
	done := w.asked("commit")
	w.do(func(now time.Time, fx *coordinator.Effects) {
		w.m.OffsetCommit(req, now, fx, func(r *kmsg.OffsetCommitResponse, err error) {
			done()
			if err == nil && r.Topics[0].Partitions[0].ErrorCode == 0 {
				w.committed[fmt.Sprintf("%s %d", g, partition)] = offset
			}
		})
	})
	for key, want := range w.committed {
		var id string
		var p int32
		if _, err := fmt.Sscan(key, &id, &p); err != nil {
			w.t.Fatal(err)
		}
		if got := w.m.groups[id].fetch(topicPartition{"t", p}, [16]byte{}, true); got.Offset != want {
			w.t.Errorf("step %d: %s: offset %d was acknowledged, %d is there", w.step, key, want, got.Offset)
		}
	}
}
