package broker

import (
	"errors"

	"cairn/broker/controller"
	"cairn/internal/ids"
	"cairn/wire/batch"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The timestamps of ListOffsets that are questions of their own.
const (
	timestampLatest          = -1
	timestampEarliest        = -2
	timestampMax             = -3 // v7+: the record with the largest timestamp
	timestampEarliestLocal   = -4 // v8+
	timestampLatestTiered    = -5 // v9+
	timestampEarliestPending = -6 // v11+: the first offset not uploaded yet
)

// offsetNotAvailable is the first version of ListOffsets whose clients know OFFSET_NOT_AVAILABLE.
const offsetNotAvailable = 5

var (
	errTimestampVersion   = errors.New("the request's version does not know this timestamp")
	errDuplicatePartition = errors.New("the partition is named twice")
)

// offsetAnswer is one partition's answer; the zero offset stands for itself, so make it with noOffsetAnswer.
type offsetAnswer struct {
	offset    ids.Offset
	timestamp int64
	epoch     ids.LeaderEpoch
}

func noOffsetAnswer() offsetAnswer {
	return offsetAnswer{offset: ids.NoOffset, timestamp: batch.NoTimestamp, epoch: ids.NoEpoch}
}

// handleListOffsets answers ListOffsets, versions 1 to 11.
func handleListOffsets(b *Broker, r *request) {
	req := r.msg.(*kmsg.ListOffsetsRequest)
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	if refuseTooMany(r, n) {
		return
	}
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Topics = make([]kmsg.ListOffsetsResponseTopic, len(req.Topics))
	img := b.images.Image()
	twice := duplicatePartitions(req)
	for i := range req.Topics {
		asked, t := &req.Topics[i], &resp.Topics[i]
		t.Topic = asked.Topic
		t.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(asked.Partitions))
		for j := range asked.Partitions {
			q, p := &asked.Partitions[j], &t.Partitions[j]
			answer, err := noOffsetAnswer(), errDuplicatePartition
			if !twice[fetchKey{topic: asked.Topic, index: q.Partition}] {
				answer, err = b.listOffset(img, req, asked.Topic, q)
			}
			p.Default()
			p.Partition, p.ErrorCode = q.Partition, listOffsetsCode(req.Version, err)
			p.Offset, p.Timestamp, p.LeaderEpoch = int64(answer.offset), answer.timestamp, int32(answer.epoch)
		}
	}
	r.reply(resp)
}

// duplicatePartitions is the set of partitions that a request names more than once.
func duplicatePartitions(req *kmsg.ListOffsetsRequest) map[fetchKey]bool {
	twice := map[fetchKey]bool{}
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			k := fetchKey{topic: req.Topics[i].Topic, index: req.Topics[i].Partitions[j].Partition}
			_, seen := twice[k]
			twice[k] = seen
		}
	}
	return twice
}

func listOffsetsCode(version int16, err error) int16 {
	code := errorCode(err)
	if code == kerr.OffsetNotAvailable.Code && version < offsetNotAvailable {
		return kerr.LeaderNotAvailable.Code
	}
	return code
}

func (b *Broker) listOffset(img *controller.Image, req *kmsg.ListOffsetsRequest, topic string, q *kmsg.ListOffsetsRequestTopicPartition) (offsetAnswer, error) {
	if !timestampKnown(req.Version, q.Timestamp) {
		return noOffsetAnswer(), errTimestampVersion
	}
	p, err := b.replicas.lookup(topic, q.Partition)
	if err != nil {
		return noOffsetAnswer(), err
	}
	known := ids.NoEpoch
	if req.Version >= 4 {
		known = ids.LeaderEpoch(q.CurrentLeaderEpoch)
	}
	r, err := p.leading(img, known)
	if err != nil {
		return noOffsetAnswer(), err
	}
	limit := p.highWatermark()
	if req.IsolationLevel == isolationReadCommitted {
		limit = min(limit, p.lastStableOffset())
	}
	answer, err := p.offsetOf(r, q.Timestamp, limit)
	b.reportDamage(err)
	return answer, err
}

// timestampKnown reports whether the version has the timestamp, which may be a time or a question.
func timestampKnown(version int16, ts int64) bool {
	switch ts {
	case timestampLatest, timestampEarliest:
		return true
	case timestampMax:
		return version >= 7
	case timestampEarliestLocal:
		return version >= 8
	case timestampLatestTiered:
		return version >= 9
	case timestampEarliestPending:
		return version >= 11
	}
	return ts >= 0
}

// offsetOf answers for one timestamp; records at or above limit do not exist for the client. A new leader's high
// watermark may be behind what consumers have seen, so what would be answered from there has to wait: errOffsetNotYet.
func (p *partition) offsetOf(r *reign, ts int64, limit ids.Offset) (a offsetAnswer, err error) {
	a = noOffsetAnswer()
	log := p.log()
	behind := p.highWatermark() < r.start
	switch ts {
	case timestampLatest:
		if behind {
			return a, errOffsetNotYet
		}
		a.offset, a.epoch = limit, r.epoch
		return a, nil
	case timestampEarliest, timestampEarliestLocal:
		a.offset = log.Start()
		a.epoch = p.epochOf(a.offset)
		return a, nil
	case timestampLatestTiered, timestampEarliestPending:
		return a, nil // no tiered storage: there is no such offset
	case timestampMax:
		a.offset, a.timestamp, a.epoch, err = log.MaxTimestamp(limit)
	default:
		a.offset, a.timestamp, a.epoch, err = log.OffsetForTime(ts, limit)
	}
	switch {
	case err != nil:
		return noOffsetAnswer(), err
	case a.offset != ids.NoOffset:
		return a, nil
	case behind:
		return a, errOffsetNotYet
	}
	return noOffsetAnswer(), nil
}

// epochOf is the leader epoch that the offset belongs to; NoEpoch when the log does not know.
func (p *partition) epochOf(o ids.Offset) ids.LeaderEpoch {
	epoch := ids.NoEpoch
	for _, e := range p.log().EpochStarts() {
		if e.Start > o {
			break
		}
		epoch = e.Epoch
	}
	return epoch
}
