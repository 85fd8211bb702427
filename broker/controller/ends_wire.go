package controller

import (
	"cairn/internal/bin"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Log ends travel in tags of Kafka's heartbeat: what changed since the last one that this controller has answered.
const (
	tagEnds     = 10010 // in the request: see appendEnds
	tagEndsTerm = 10011 // in the response: the controller's term, in which they count
)

// endsPerBeat bounds what one heartbeat carries; the rest goes with the next one.
const endsPerBeat = 20_000

// endMin is the least number of bytes of an end: four variable-length numbers.
const endMin = 4

// appendEnds encodes ends: a flag, 1 if there are no more to come, their number, and for each partition id, leader epoch,
// end offset and time of the last append.
func appendEnds(dst []byte, ends []PartitionEnd, complete bool) []byte {
	dst = bin.AppendBool(dst, complete)
	dst = bin.AppendUvarint(dst, uint64(len(ends)))
	for _, e := range ends {
		dst = bin.AppendUvarint(dst, e.Partition)
		dst = bin.AppendVarint(dst, e.LeaderEpoch)
		dst = bin.AppendVarint(dst, e.End)
		dst = bin.AppendVarint(dst, e.AppendMs)
	}
	return dst
}

// decodeEnds is the inverse of appendEnds. AsOfMs is left to the receiver.
func decodeEnds(b []byte) (ends []PartitionEnd, complete bool, err error) {
	r := bin.NewReader(b)
	complete = r.Bool()
	n := r.Count(endMin)
	for range n {
		e := PartitionEnd{Partition: ids.PartitionID(r.Uvarint())}
		e.LeaderEpoch, e.End, e.AppendMs = ids.LeaderEpoch(r.Varint32()), ids.Offset(r.Varint()), r.Varint()
		ends = append(ends, e)
	}
	return ends, complete, r.Done()
}

// noteHeartbeat takes the log ends off a heartbeat and tells in its answer in which term they are noted.
func (c *Controller) noteHeartbeat(req *kmsg.BrokerHeartbeatRequest, resp *kmsg.BrokerHeartbeatResponse) error {
	raw := tagBytes(&req.UnknownTags, tagEnds)
	if raw == nil {
		return nil
	}
	ends, complete, err := decodeEnds(raw)
	if err != nil {
		return err
	}
	setTagUint(&resp.UnknownTags, tagEndsTerm, uint64(c.noteReported(ids.NodeID(req.BrokerID), ends, complete)))
	return nil
}

// reportedEnds is what the controller of a term knows of this broker's log ends. It belongs to the heartbeat goroutine.
type reportedEnds struct {
	term  uint64
	known map[ids.PartitionID]LogEnd
	sent  []PartitionEnd // with the heartbeat under way
}

// attach puts what changed into the heartbeat.
func (r *reportedEnds) attach(req *kmsg.BrokerHeartbeatRequest, current []PartitionEnd) {
	r.sent = r.sent[:0]
	complete := true
	for _, e := range current {
		if known, ok := r.known[e.Partition]; ok && known == e.LogEnd {
			continue
		}
		if len(r.sent) == endsPerBeat {
			complete = false
			break
		}
		r.sent = append(r.sent, e)
	}
	if len(r.known) > 2*len(current) { // partitions have gone
		r.known = nil
	}
	req.UnknownTags.Set(tagEnds, appendEnds(nil, r.sent, complete))
}

// answered notes that the controller of the response knows what was sent.
func (r *reportedEnds) answered(resp *kmsg.BrokerHeartbeatResponse) {
	term := tagUint(&resp.UnknownTags, tagEndsTerm)
	if term == 0 {
		return
	}
	if term != r.term || r.known == nil {
		r.term, r.known = term, make(map[ids.PartitionID]LogEnd, len(r.sent))
	}
	for _, e := range r.sent {
		r.known[e.Partition] = e.LogEnd
	}
}
