package broker

import (
	"fmt"

	"cairn/engine"
	"cairn/internal/bin"
	"cairn/internal/ids"
	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// logPrefixKey is the API key with which a replica that joins a generation asks its leader for the log below the base.
const logPrefixKey = kmsg.Key(10002)

const logPrefixVersion = 3

func logPrefixAPI() wire.PrivateAPI {
	return wire.PrivateAPI{Key: int16(logPrefixKey), Name: "LogPrefix", Clients: true, New: func() kmsg.Request { return &logPrefixRequest{} }}
}

// logPrefixRequest asks the leader of the epoch for its epochs, and for batches of its log below the base offset of its
// generation.
type logPrefixRequest struct {
	version     int16
	topicID     ids.UUID
	partition   int32
	shard       ids.ShardID
	leaderEpoch ids.LeaderEpoch
	node        ids.NodeID // who asks
	from        ids.Offset // ids.NoOffset: no batches
	maxBytes    int32
}

// Key and the methods below implement kmsg.Request.
func (*logPrefixRequest) Key() int16                  { return int16(logPrefixKey) }
func (*logPrefixRequest) MaxVersion() int16           { return 0 }
func (r *logPrefixRequest) SetVersion(v int16)        { r.version = v }
func (r *logPrefixRequest) GetVersion() int16         { return r.version }
func (*logPrefixRequest) IsFlexible() bool            { return true }
func (*logPrefixRequest) ResponseKind() kmsg.Response { return &logPrefixResponse{} }

func (r *logPrefixRequest) AppendTo(dst []byte) []byte {
	dst = append(append(dst, logPrefixVersion), r.topicID[:]...)
	dst = bin.AppendVarint(dst, r.partition)
	dst = bin.AppendUvarint(dst, uint64(r.shard))
	dst = bin.AppendVarint(dst, r.leaderEpoch)
	dst = bin.AppendVarint(dst, r.node)
	dst = bin.AppendVarint(dst, r.from)
	return bin.AppendVarint(dst, r.maxBytes)
}

func (r *logPrefixRequest) ReadFrom(src []byte) error {
	b := bin.NewReader(src)
	b.Version(logPrefixVersion)
	b.Fixed(r.topicID[:])
	r.partition = b.Varint32()
	r.shard = ids.ShardID(b.Uvarint())
	r.leaderEpoch = ids.LeaderEpoch(b.Varint32())
	r.node = ids.NodeID(b.Varint32())
	r.from = ids.Offset(b.Varint())
	r.maxBytes = b.Varint32()
	return b.Done()
}

// logPrefixResponse answers it.
type logPrefixResponse struct {
	version    int16
	code       int16
	base       ids.Offset // of the generation
	start, end ids.Offset // of the leader's log
	epochs     []engine.EpochStart
	waitMs     int32                       // how long to wait before the next request
	aborted    []engine.AbortedTransaction // whose markers are in records
	records    []byte                      // whole batches below base; in a response that was read it aliases the frame
}

// Key and the methods below implement kmsg.Response.
func (*logPrefixResponse) Key() int16                { return int16(logPrefixKey) }
func (*logPrefixResponse) MaxVersion() int16         { return 0 }
func (r *logPrefixResponse) SetVersion(v int16)      { r.version = v }
func (r *logPrefixResponse) GetVersion() int16       { return r.version }
func (*logPrefixResponse) IsFlexible() bool          { return true }
func (*logPrefixResponse) RequestKind() kmsg.Request { return &logPrefixRequest{} }

func (r *logPrefixResponse) AppendTo(dst []byte) []byte {
	dst = bin.AppendVarint(append(dst, logPrefixVersion), r.code)
	dst = bin.AppendVarint(dst, r.base)
	dst = bin.AppendVarint(dst, r.start)
	dst = bin.AppendVarint(dst, r.end)
	dst = bin.AppendVarint(dst, r.waitMs)
	dst = bin.AppendUvarint(dst, uint64(len(r.epochs)))
	for _, e := range r.epochs {
		dst = bin.AppendVarint(dst, e.Epoch)
		dst = bin.AppendVarint(dst, e.Start)
	}
	dst = bin.AppendUvarint(dst, uint64(len(r.aborted)))
	for _, a := range r.aborted {
		dst = bin.AppendUvarint(dst, uint64(a.ProducerID))
		dst = bin.AppendUvarint(dst, uint64(a.First))
		dst = bin.AppendUvarint(dst, uint64(a.Last))
		dst = bin.AppendUvarint(dst, uint64(a.Stable))
	}
	return append(dst, r.records...)
}

func (r *logPrefixResponse) ReadFrom(src []byte) error {
	b := bin.NewReader(src)
	b.Version(logPrefixVersion)
	r.code = b.Varint16()
	r.base, r.start, r.end = ids.Offset(b.Varint()), ids.Offset(b.Varint()), ids.Offset(b.Varint())
	r.waitMs = b.Varint32()
	r.epochs = make([]engine.EpochStart, b.Count(2))
	for i := range r.epochs {
		r.epochs[i] = engine.EpochStart{Epoch: ids.LeaderEpoch(b.Varint32()), Start: ids.Offset(b.Varint())}
		if i > 0 && (r.epochs[i].Epoch <= r.epochs[i-1].Epoch || r.epochs[i].Start < r.epochs[i-1].Start) {
			b.Fail("epochs are not ascending")
		}
	}
	r.aborted = make([]engine.AbortedTransaction, b.Count(4))
	for i := range r.aborted {
		r.aborted[i] = engine.AbortedTransaction{ProducerID: b.Int64(), First: ids.Offset(b.Int64()), Last: ids.Offset(b.Int64()), Stable: ids.Offset(b.Int64())}
	}
	r.records = b.Rest()
	if err := b.Done(); err != nil {
		return fmt.Errorf("log prefix: %w", err)
	}
	return nil
}

// prefixBytesMax bounds the batches in one answer; a single batch that is larger goes alone.
const prefixBytesMax = 1 << 20

// handleLogPrefix answers a replica that joins the generation which is led here.
func handleLogPrefix(b *Broker, r *request) {
	req := r.msg.(*logPrefixRequest)
	resp := &logPrefixResponse{}
	if err := b.logPrefix(req, resp); err != nil {
		*resp = logPrefixResponse{code: errorCode(err)}
	}
	r.reply(resp)
}

func (b *Broker) logPrefix(req *logPrefixRequest, resp *logPrefixResponse) error {
	if b.replicas == nil {
		return errNotLeader
	}
	p, err := b.replicas.lookupID(req.topicID, req.partition)
	if err != nil {
		return err
	}
	reign := p.serving()
	if reign == nil || p.shard != req.shard || reign.epoch != req.leaderEpoch {
		return errNotLeader
	}
	log := p.log()
	resp.base, resp.start, resp.end, resp.epochs = p.baseOffset, log.Start(), log.End(), log.EpochStarts()
	if req.from < 0 || req.from >= p.baseOffset || req.from < resp.start {
		return nil
	}
	got, aborted, err := log.ReadWithMarkers(engine.ReadOptions{
		From: req.from, Limit: p.baseOffset, MaxBytes: int(min(max(req.maxBytes, 0), prefixBytesMax)), MinOneBatch: true,
	})
	if err != nil {
		return err
	}
	for _, part := range got.Parts {
		resp.records = append(resp.records, part...)
	}
	resp.aborted = aborted
	wait, _ := b.replicas.throttle.charge(p.topic, p.index, req.node, len(resp.records))
	resp.waitMs = int32(wait.Milliseconds())
	return nil
}
