package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/txn"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// markerWorld is what a markerSender of node 1 has around it: partitions with leaders, and a machine that counts.
type markerWorld struct {
	mu       sync.Mutex
	leaders  map[txn.Partition]ids.NodeID
	refusals map[txn.Partition][]int16 // codes to answer with, before 0
	written  map[txn.Partition]int
	reported map[txn.Partition]int
	refuse   []error                // answers of the machine, before nil
	still    map[txn.Partition]bool // no marker gets through
	dead     map[ids.NodeID]bool
}

func (w *markerWorld) leader(p txn.Partition) (ids.NodeID, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, ok := w.leaders[p]
	return n, ok
}

// write is what a leader makes of a marker.
func (w *markerWorld) write(p txn.Partition) int16 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if codes := w.refusals[p]; len(codes) > 0 {
		w.refusals[p] = codes[1:]
		return codes[0]
	}
	w.written[p]++
	return 0
}

func (w *markerWorld) request(_ context.Context, lane markerLaneKey, req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, error) {
	w.mu.Lock()
	dead := w.dead[lane.node]
	w.mu.Unlock()
	if dead {
		return nil, errors.New("connection refused")
	}
	resp, late := kmsg.NewPtrWriteTxnMarkersResponse(), false
	for _, m := range req.Markers {
		rm := kmsg.WriteTxnMarkersResponseMarker{ProducerID: m.ProducerID}
		for _, t := range m.Topics {
			rt := kmsg.WriteTxnMarkersResponseMarkerTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				code, at := kerr.RequestTimedOut.Code, txn.Partition{Topic: t.Topic, Index: p}
				if w.standsStill(at) {
					late = true
				} else {
					code = w.write(at)
				}
				rt.Partitions = append(rt.Partitions, kmsg.WriteTxnMarkersResponseMarkerTopicPartition{Partition: p, ErrorCode: code})
			}
			rm.Topics = append(rm.Topics, rt)
		}
		resp.Markers = append(resp.Markers, rm)
	}
	if late {
		time.Sleep(cmp.Or(markersWait(req), time.Minute))
	}
	return resp, nil
}

func (w *markerWorld) standsStill(p txn.Partition) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.still[p]
}

func (w *markerWorld) report(_ int32, _ txn.Markers, written []txn.Partition, reply func(error)) {
	w.mu.Lock()
	var err error
	if len(w.refuse) > 0 {
		err, w.refuse = w.refuse[0], w.refuse[1:]
	} else {
		for _, p := range written {
			w.reported[p]++
		}
	}
	w.mu.Unlock()
	reply(err)
}

var (
	hereA, hereB   = txn.Partition{Topic: "here", Index: 0}, txn.Partition{Topic: "here", Index: 1}
	thereA, thereB = txn.Partition{Topic: "there", Index: 0}, txn.Partition{Topic: "there", Index: 1}
)

// withMarkers runs a test with a sender in a bubble of its own.
func withMarkers(t *testing.T, f func(t *testing.T, w *markerWorld, s *markerSender, ms txn.Markers)) {
	synctest.Test(t, func(t *testing.T) {
		w := &markerWorld{
			leaders: map[txn.Partition]ids.NodeID{hereA: 1, hereB: 1, thereA: 2, thereB: 3},
			still:   map[txn.Partition]bool{}, refusals: map[txn.Partition][]int16{}, written: map[txn.Partition]int{}, reported: map[txn.Partition]int{}, dead: map[ids.NodeID]bool{},
		}
		s := newMarkerSender(markerSenderConfig{
			Leader: w.leader, Self: 1, Request: w.request, Report: w.report, Log: zap.NewNop(),
			Write: func(p txn.Partition, _ *txn.Markers, done func(error)) {
				if !w.standsStill(p) {
					done(kerr.ErrorForCode(w.write(p)))
				}
			},
		})
		defer s.close()
		f(t, w, s, txn.Markers{
			ID: "id", Producer: txn.Producer{ID: 7, Epoch: 5}, Commit: true, CoordinatorEpoch: 4, Version: txn.Version2,
			Partitions: []txn.Partition{hereA, hereB, thereA, thereB},
		})
	})
}

func (w *markerWorld) want(t *testing.T, s *markerSender, written, reported map[txn.Partition]int, left int) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !maps.Equal(w.written, written) || !maps.Equal(w.reported, reported) || s.unwritten() != left {
		t.Errorf("written %v, reported %v, %d transactions left; want %v, %v, %d", w.written, w.reported, s.unwritten(), written, reported, left)
	}
}

func once(parts ...txn.Partition) map[txn.Partition]int {
	m := map[txn.Partition]int{}
	for _, p := range parts {
		m[p]++
	}
	return m
}

func TestMarkersGoToAllLeaders(t *testing.T) {
	withMarkers(t, func(t *testing.T, w *markerWorld, s *markerSender, ms txn.Markers) {
		s.send(3, ms)
		w.want(t, s, once(ms.Partitions...), once(ms.Partitions...), 0)
	})
}

func TestMarkersAreTriedAgain(t *testing.T) {
	for _, code := range []*kerr.Error{
		kerr.UnknownTopicOrPartition, kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
		kerr.KafkaStorageError, kerr.NotCoordinator, kerr.UnknownServerError,
	} {
		withMarkers(t, func(t *testing.T, w *markerWorld, s *markerSender, ms txn.Markers) {
			w.refusals[hereA], w.refusals[thereA] = []int16{code.Code, code.Code}, []int16{code.Code}
			s.send(3, ms)
			s.send(3, ms) // is under way already
			w.want(t, s, once(hereB, thereB), once(hereB, thereB), 1)
			time.Sleep(3 * markerBackoff)
			w.want(t, s, once(ms.Partitions...), once(ms.Partitions...), 0)
		})
	}
}

func TestMarkersFollowLeaders(t *testing.T) {
	withMarkers(t, func(t *testing.T, w *markerWorld, s *markerSender, ms txn.Markers) {
		w.dead[2] = true
		w.leaders[thereB] = ids.NoNode
		s.send(3, ms)
		time.Sleep(10 * markerBackoff)
		w.want(t, s, once(hereA, hereB), once(hereA, hereB), 1)
		w.mu.Lock()
		w.leaders[thereA], w.leaders[thereB] = 3, 1
		w.mu.Unlock()
		time.Sleep(2 * markerBackoff)
		w.want(t, s, once(ms.Partitions...), once(ms.Partitions...), 0)
	})
}

func TestMarkersGiveUpForSomebodyNewer(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.InvalidProducerEpoch, kerr.TransactionCoordinatorFenced} {
		withMarkers(t, func(t *testing.T, w *markerWorld, s *markerSender, ms txn.Markers) {
			ms.Partitions = []txn.Partition{hereA}
			w.refusals[hereA] = []int16{code.Code}
			s.send(3, ms)
			time.Sleep(10 * markerBackoff)
			w.want(t, s, once(), once(), 0)
		})
	}
}

func TestMarkersForPartitionsThatNeedNone(t *testing.T) {
	withMarkers(t, func(t *testing.T, w *markerWorld, s *markerSender, ms txn.Markers) {
		w.refusals[thereA] = []int16{kerr.UnsupportedForMessageFormat.Code}
		delete(w.leaders, hereA)
		s.send(3, ms)
		time.Sleep(markerTopicGone - time.Second)
		w.want(t, s, once(hereB, thereB), once(hereB, thereA, thereB), 1)
		time.Sleep(2 * time.Second)
		w.want(t, s, once(hereB, thereB), once(ms.Partitions...), 0)
	})
}

func TestMarkersReportUntilTheMachineHasTakenThem(t *testing.T) {
	withMarkers(t, func(t *testing.T, w *markerWorld, s *markerSender, ms txn.Markers) {
		ms.Partitions = []txn.Partition{hereA, hereB}
		w.refuse = []error{coordinator.ErrTimeout, coordinator.ErrUnavailable}
		s.send(3, ms)
		w.want(t, s, once(hereA, hereB), once(), 1)
		time.Sleep(3 * markerBackoff)
		w.want(t, s, once(hereA, hereB), once(hereA, hereB), 0)
	})
}

func TestMarkersOfAFormerCoordinatorAreForgotten(t *testing.T) {
	for _, answer := range []error{kerr.InvalidTxnState, coordinator.ErrNotCoordinator} {
		withMarkers(t, func(t *testing.T, w *markerWorld, s *markerSender, ms txn.Markers) {
			ms.Partitions = []txn.Partition{hereA}
			w.refuse = []error{answer}
			s.send(3, ms)
			w.want(t, s, once(hereA), once(), 0)
		})
	}
	withMarkers(t, func(t *testing.T, w *markerWorld, s *markerSender, ms txn.Markers) {
		w.leaders = map[txn.Partition]ids.NodeID{hereA: ids.NoNode, hereB: ids.NoNode, thereA: ids.NoNode, thereB: ids.NoNode}
		s.send(3, ms)
		s.send(4, ms)
		s.drop(3)
		w.want(t, s, once(), once(), 1)
		s.drop(4)
		w.mu.Lock()
		w.leaders[hereA] = 1
		w.mu.Unlock()
		time.Sleep(3 * markerBackoff)
		w.want(t, s, once(), once(), 0)
	})
}

// A partition that stands still holds up the markers of others at its broker once, for a moment, and its own go on when it does.
func TestMarkersOfAPartitionThatStandsStillHoldUpNoOthers(t *testing.T) {
	withMarkers(t, func(t *testing.T, w *markerWorld, s *markerSender, ms txn.Markers) {
		healthy := txn.Partition{Topic: "there", Index: 2}
		w.leaders[healthy] = 2
		w.still[hereA], w.still[thereA] = true, true
		ms.Partitions = []txn.Partition{hereA, thereA}
		s.send(3, ms)
		for i := range 50 {
			begun := time.Now()
			s.send(3, txn.Markers{
				ID: fmt.Sprint("other", i), Producer: txn.Producer{ID: int64(100 + i)}, Commit: true, Version: txn.Version2,
				Partitions: []txn.Partition{hereB, healthy},
			})
			for s.unwritten() > 1 {
				time.Sleep(time.Millisecond)
			}
			limit := 2 * time.Millisecond
			if i == 0 {
				limit += markersWithin
			}
			if took := time.Since(begun); took > limit {
				t.Fatalf("transaction %d took %v to end", i, took)
			}
			time.Sleep(100 * time.Millisecond)
		}
		w.mu.Lock()
		clear(w.still)
		w.mu.Unlock()
		time.Sleep(markersPatience + 2*markerBackoff)
		w.want(t, s, map[txn.Partition]int{hereA: 1, thereA: 1, hereB: 50, healthy: 50}, map[txn.Partition]int{hereA: 1, thereA: 1, hereB: 50, healthy: 50}, 0)
		if len(s.slow) != 0 || len(s.lanes) != 0 {
			t.Errorf("slow %v, lanes %v", s.slow, s.lanes)
		}
	})
}

func TestMarkersRequestKeepsTransactionsApart(t *testing.T) {
	first := &markerTask{ms: txn.Markers{Producer: txn.Producer{ID: 7, Epoch: 5}, Commit: true, CoordinatorEpoch: 4, Version: txn.Version2}}
	second := &markerTask{ms: txn.Markers{Producer: txn.Producer{ID: 8, Epoch: 1}, CoordinatorEpoch: 9}}
	req := markersRequest([]markerItem{
		{task: first, partition: hereA}, {task: first, partition: hereB}, {task: first, partition: thereA}, {task: second, partition: thereA},
	})
	if len(req.Markers) != 2 || len(req.Markers[0].Topics) != 2 || !slices.Equal(req.Markers[0].Topics[0].Partitions, []int32{0, 1}) {
		t.Fatalf("%+v", req.Markers)
	}
	if m := req.Markers[0]; m.ProducerID != 7 || m.ProducerEpoch != 5 || !m.Committed || m.CoordinatorEpoch != 4 || m.TransactionVersion != 2 {
		t.Errorf("first %+v", m)
	}
	if m := req.Markers[1]; m.ProducerID != 8 || m.Committed || m.TransactionVersion != 0 {
		t.Errorf("second %+v", m)
	}
}
