package wire

import (
	"encoding/binary"
	"net"
)

// FetchResponse is the answer to a fetch request, with records as lists of byte slices so that they need not be
// copied. Fields that a version lacks are left out of its encoding.
type FetchResponse struct {
	ThrottleMillis int32
	ErrorCode      int16 // v7+
	SessionID      int32 // v7+
	Topics         []FetchTopic
	// NodeEndpoints says where the leaders named by CurrentLeader are reached (v16+).
	NodeEndpoints []NodeEndpoint
}

// FetchTopic holds a topic's partitions. Topic goes out up to version 12, TopicID from 13.
type FetchTopic struct {
	Topic      string
	TopicID    [16]byte
	Partitions []FetchPartition
}

// FetchPartition is the answer for one partition. Make it with NewFetchPartition: several fields default to -1.
type FetchPartition struct {
	Partition           int32
	ErrorCode           int16
	HighWatermark       int64
	LastStableOffset    int64
	LogStartOffset      int64                // v5+
	AbortedTransactions []AbortedTransaction // nil goes out as null
	// PreferredReadReplica is the broker to read from instead (v11+), -1 for none.
	PreferredReadReplica int32
	// Records, one behind the other, are whole batches. Borrowed until the response is written.
	Records [][]byte
	// DivergingEpoch and DivergingEndOffset tell a follower where its log departs (v12+), -1 for nothing to tell.
	DivergingEpoch     int32
	DivergingEndOffset int64
	// CurrentLeaderID and CurrentLeaderEpoch go with leader errors (v12+), -1 for nothing to tell.
	CurrentLeaderID    int32
	CurrentLeaderEpoch int32
}

// AbortedTransaction names a transaction in the fetched range that was aborted, by its producer and first offset.
type AbortedTransaction struct {
	ProducerID, FirstOffset int64
}

// NodeEndpoint is the address of a broker. A nil Rack is unknown.
type NodeEndpoint struct {
	NodeID int32
	Host   string
	Port   int32
	Rack   *string
}

// NewFetchPartition returns an answer without records in which all that has "nothing to tell" says so.
func NewFetchPartition(partition int32, errorCode int16) FetchPartition {
	return FetchPartition{
		Partition: partition, ErrorCode: errorCode,
		HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, PreferredReadReplica: -1,
		DivergingEpoch: -1, DivergingEndOffset: -1, CurrentLeaderID: -1, CurrentLeaderEpoch: -1,
	}
}

// EncodeFetchResponse makes the whole response frame for the request header h, versions 4 to 18: length prefix,
// header and body. The buffers alias the Records of r, which stay untouched; all else in them is new.
func EncodeFetchResponse(h Header, r *FetchResponse) net.Buffers {
	e := newFetchEncoder(h, r)
	e.b = appendResponseHeader(e.b, h, e.flexible)
	e.int32(r.ThrottleMillis)
	if h.Version >= 7 {
		e.int16(r.ErrorCode)
		e.int32(r.SessionID)
	}
	e.length(len(r.Topics), 4)
	for i := range r.Topics {
		e.topic(&r.Topics[i])
	}
	if e.flexible {
		e.endpointsTag(r.NodeEndpoints)
	}
	e.flush()
	putFrameLength(e.out[0], e.total)
	return e.out
}

// fetchEncoder collects the buffers. b holds what was encoded since the last spliced records; a slice of it goes to
// out at each splice, and the rest of its capacity is used on.
type fetchEncoder struct {
	version  int16
	flexible bool
	b        []byte
	out      net.Buffers
	total    int
}

// newFetchEncoder sizes the buffers such that ordinary responses need no second allocation of each.
func newFetchEncoder(h Header, r *FetchResponse) fetchEncoder {
	size, parts := 64, 1
	for i := range r.Topics {
		t := &r.Topics[i]
		size += 32 + len(t.Topic)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			size += 80 + 17*len(p.AbortedTransactions)
			if len(p.Records) > 0 {
				parts += len(p.Records) + 1
			}
		}
	}
	return fetchEncoder{version: h.Version, flexible: h.Version >= 12, b: make([]byte, 0, size), out: make(net.Buffers, 0, parts)}
}

func (e *fetchEncoder) topic(t *FetchTopic) {
	if e.version >= 13 {
		e.b = append(e.b, t.TopicID[:]...)
	} else {
		e.string(t.Topic)
	}
	e.length(len(t.Partitions), 4)
	for i := range t.Partitions {
		e.partition(&t.Partitions[i])
	}
	e.noTags()
}

func (e *fetchEncoder) partition(p *FetchPartition) {
	e.int32(p.Partition)
	e.int16(p.ErrorCode)
	e.int64(p.HighWatermark)
	e.int64(p.LastStableOffset)
	if e.version >= 5 {
		e.int64(p.LogStartOffset)
	}
	e.aborted(p.AbortedTransactions)
	if e.version >= 11 {
		e.int32(p.PreferredReadReplica)
	}
	e.records(p.Records)
	if e.flexible {
		e.partitionTags(p)
	}
}

func (e *fetchEncoder) aborted(ts []AbortedTransaction) {
	if ts == nil {
		e.length(-1, 4)
		return
	}
	e.length(len(ts), 4)
	for _, t := range ts {
		e.int64(t.ProducerID)
		e.int64(t.FirstOffset)
		e.noTags()
	}
}

// records writes the length and splices the parts in.
func (e *fetchEncoder) records(parts [][]byte) {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	e.length(n, 4)
	if n == 0 {
		return
	}
	e.flush()
	for _, p := range parts {
		if len(p) > 0 {
			e.out = append(e.out, p)
		}
	}
	e.total += n
}

func (e *fetchEncoder) partitionTags(p *FetchPartition) {
	diverging := p.DivergingEpoch != -1 || p.DivergingEndOffset != -1
	leader := p.CurrentLeaderID != -1 || p.CurrentLeaderEpoch != -1
	e.uvarint(count(diverging) + count(leader))
	if diverging {
		e.b = append(e.b, 0, 13)
		e.int32(p.DivergingEpoch)
		e.int64(p.DivergingEndOffset)
		e.noTags()
	}
	if leader {
		e.b = append(e.b, 1, 9)
		e.int32(p.CurrentLeaderID)
		e.int32(p.CurrentLeaderEpoch)
		e.noTags()
	}
}

// endpointsTag writes the tagged fields at the end of the response.
func (e *fetchEncoder) endpointsTag(nodes []NodeEndpoint) {
	e.uvarint(count(len(nodes) > 0))
	if len(nodes) == 0 {
		return
	}
	body := fetchEncoder{version: e.version, flexible: true}
	body.length(len(nodes), 4)
	for _, n := range nodes {
		body.int32(n.NodeID)
		body.string(n.Host)
		body.int32(n.Port)
		if n.Rack == nil {
			body.length(-1, 2)
		} else {
			body.string(*n.Rack)
		}
		body.noTags()
	}
	e.uvarint(0)
	e.uvarint(uint64(len(body.b)))
	e.b = append(e.b, body.b...)
}

// flush hands what was encoded to out and goes on behind it.
func (e *fetchEncoder) flush() {
	if len(e.b) == 0 {
		return
	}
	e.out = append(e.out, e.b[:len(e.b):len(e.b)])
	e.total += len(e.b)
	e.b = e.b[len(e.b):]
}

func (e *fetchEncoder) int16(v int16)    { e.b = binary.BigEndian.AppendUint16(e.b, uint16(v)) }
func (e *fetchEncoder) int32(v int32)    { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *fetchEncoder) int64(v int64)    { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }
func (e *fetchEncoder) uvarint(v uint64) { e.b = binary.AppendUvarint(e.b, v) }

// length writes the length of an array, bytes or string (-1: null): compact where flexible, else in size bytes.
func (e *fetchEncoder) length(n, size int) {
	switch {
	case e.flexible:
		e.uvarint(uint64(n + 1))
	case size == 2:
		e.int16(int16(n))
	default:
		e.int32(int32(n))
	}
}

func (e *fetchEncoder) string(s string) {
	e.length(len(s), 2)
	e.b = append(e.b, s...)
}

func (e *fetchEncoder) noTags() {
	if e.flexible {
		e.b = append(e.b, 0)
	}
}

func count(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
