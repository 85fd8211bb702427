package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cairn/engine"
	"cairn/internal/ids"
	"cairn/wire"
	"cairn/wire/private"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// deletionsAtOnce bounds the DeleteRecords requests that are under way.
	deletionsAtOnce = 64
	// deletionLook is how often a request looks whether the replicas have moved their log start.
	deletionLook = 50 * time.Millisecond
	// deletionTimeout bounds a request that names no time of its own, deletionTimeoutMax any: it holds one of few places meanwhile.
	deletionTimeout    = 30 * time.Second
	deletionTimeoutMax = 2 * time.Minute
	// deleteToHighWatermark is the offset that stands for the high watermark.
	deleteToHighWatermark = -1
)

// Refusals of DeleteRecords.
var (
	errCompactOnly   = errors.New("records of a topic that is only compacted cannot be deleted")
	errDeleteRange   = errors.New("the offset to delete up to is negative, or above the high watermark")
	errDeletionsBusy = errors.New("too many deletions are under way")
)

// deletion is one partition of a DeleteRecords request. It is done when the log start of every live replica has reached the offset: a log
// start that the leader alone had moved would be back where it was after its death.
type deletion struct {
	topic, index int // place in the response
	p            *partition
	reign        *reign
	to           ids.Offset
}

// handleDeleteRecords moves the log start of partitions that are led here, by an entry of the log like any other.
func handleDeleteRecords(b *Broker, r *request) {
	req := r.msg.(*kmsg.DeleteRecordsRequest)
	resp := kmsg.NewPtrDeleteRecordsResponse()
	n := 0
	for _, t := range req.Topics {
		rt := kmsg.NewDeleteRecordsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewDeleteRecordsResponseTopicPartition()
			rp.Partition, rp.LowWatermark = p.Partition, -1
			rt.Partitions = append(rt.Partitions, rp)
			n++
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if refuseTooMany(r, n) {
		return
	}
	run := func() {
		b.deleteRecords(req, resp)
		r.reply(resp)
	}
	if !b.replicas.background(b.replicas.deletions, run) {
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				resp.Topics[i].Partitions[j].ErrorCode = errorCode(errDeletionsBusy)
			}
		}
		r.reply(resp)
	}
}

// background runs f on a goroutine that shutdown waits for, unless all slots are taken or this broker is stopping.
func (m *replicaManager) background(slots chan struct{}, f func()) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return false
	}
	select {
	case slots <- struct{}{}:
	default:
		return false
	}
	m.deleting.Go(func() {
		defer func() { <-slots }()
		f()
	})
	return true
}

// deleteRecords fills in the response. It returns at the request's time at the latest, or when that is too long, at deletionTimeoutMax.
func (b *Broker) deleteRecords(req *kmsg.DeleteRecordsRequest, resp *kmsg.DeleteRecordsResponse) {
	ctx, cancel := context.WithTimeout(b.replicas.stopping, deletionWithin(req.TimeoutMillis))
	defer cancel()
	var pending []deletion
	for i, t := range req.Topics {
		for j, p := range t.Partitions {
			d, err := b.beginDeletion(t.Topic, p.Partition, p.Offset)
			if err != nil {
				resp.Topics[i].Partitions[j].ErrorCode = errorCode(err)
				continue
			}
			d.topic, d.index = i, j
			pending = append(pending, d)
		}
	}
	ticker := time.NewTicker(deletionLook)
	defer ticker.Stop()
	for {
		if pending = b.settleDeletions(ctx, pending, resp); len(pending) == 0 {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			for _, d := range pending {
				resp.Topics[d.topic].Partitions[d.index].ErrorCode = kerr.RequestTimedOut.Code
			}
			return
		}
	}
}

// deletionWithin is how long a request may take that asks for a time.
func deletionWithin(askedMs int32) time.Duration {
	if askedMs <= 0 {
		return deletionTimeout
	}
	return min(time.Duration(askedMs)*time.Millisecond, deletionTimeoutMax)
}

// beginDeletion checks the deletion and proposes the new log start, if it is one.
func (b *Broker) beginDeletion(topic string, index int32, offset int64) (deletion, error) {
	if isInternalTopic(topic) {
		return deletion{}, fmt.Errorf("%w: its records cannot be deleted", errInternalTopic)
	}
	p, err := b.replicas.lookup(topic, index)
	if err != nil {
		return deletion{}, err
	}
	r, err := p.leading(b.images.Image(), ids.NoEpoch)
	if err != nil {
		return deletion{}, err
	}
	if s := p.settings.Load(); s.CompactPolicy && !s.DeletePolicy {
		return deletion{}, errCompactOnly
	}
	hw := p.highWatermark()
	to := ids.Offset(offset)
	if offset == deleteToHighWatermark {
		to = hw
	}
	if to < 0 || to > hw {
		return deletion{}, fmt.Errorf("%w: %d, the high watermark is %d", errDeleteRange, offset, hw)
	}
	d := deletion{p: p, reign: r, to: to}
	if to <= p.log().Start() {
		return d, nil
	}
	data := engine.EncodeLogStart(engine.Header{Kind: engine.KindLogStart}, to)
	return d, p.submitControl(r, engine.KindLogStart, data, noWaiter{})
}

// noWaiter hears of an entry that nobody waits for the save of.
type noWaiter struct{}

func (noWaiter) appended(int, ids.Offset, ids.Offset, int64) {}
func (noWaiter) dropped(int)                                 {}

// settleDeletions answers for the partitions whose replicas are all there, and returns the others.
func (b *Broker) settleDeletions(ctx context.Context, pending []deletion, resp *kmsg.DeleteRecordsResponse) []deletion {
	img := b.images.Image()
	asked := map[ids.NodeID][]ids.PartitionID{}
	low := map[ids.PartitionID]ids.Offset{}
	var left []deletion
	for _, d := range pending {
		rp := &resp.Topics[d.topic].Partitions[d.index]
		state, ok := img.PartitionOf(d.p.topicID, d.p.index)
		if !ok || d.p.serving() != d.reign {
			rp.ErrorCode = errorCode(errNotLeader) // the next leader may have it, or not
			continue
		}
		left = append(left, d)
		if low[d.p.id] = d.p.log().Start(); low[d.p.id] < d.to {
			continue // not even here
		}
		for _, n := range state.Replicas {
			if n != b.nodeID && img.Usable(n) {
				asked[n] = append(asked[n], d.p.id)
			}
		}
	}
	for n, partitions := range asked {
		starts := b.replicas.askStarts(ctx, n, partitions)
		for _, id := range partitions {
			start, ok := starts[id]
			if !ok {
				start = -1 // it does not answer, or is about to start
			}
			low[id] = min(low[id], start)
		}
	}
	pending = left[:0]
	for _, d := range left {
		if low[d.p.id] < d.to {
			pending = append(pending, d)
			continue
		}
		resp.Topics[d.topic].Partitions[d.index].LowWatermark = int64(low[d.p.id])
	}
	return pending
}

// askStarts asks another broker where the logs of partitions start there; those that it does not tell are left out.
func (m *replicaManager) askStarts(ctx context.Context, node ids.NodeID, partitions []ids.PartitionID) map[ids.PartitionID]ids.Offset {
	conn, err := m.leaders.get(node, func() (*wire.Conn, error) { return m.dialReplica(node) })
	if err != nil {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, prefixWithin)
	defer cancel()
	answer, err := conn.RoundTrip(within, &private.ReplicasRequest{Body: private.ReplicaQuery{Partitions: partitions}})
	if err != nil {
		if ctx.Err() == nil || conn.Err() != nil { // not if the client just gave little time: others use the connection
			m.leaders.drop(node, conn)
		}
		return nil
	}
	starts := map[ids.PartitionID]ids.Offset{}
	for _, r := range answer.(*private.ReplicasResponse).Body.Replicas {
		starts[r.Partition] = r.Start
	}
	return starts
}
