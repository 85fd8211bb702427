package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

// wireConn is a connection on which a test says what it likes.
type wireConn struct {
	net.Conn
	t *testing.T
}

func dialNode(t *testing.T, n *harness.Node) *wireConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", n.Addr, 5*time.Second)
	must(t, err)
	must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	t.Cleanup(func() { _ = c.Close() }) // some are closed already
	return &wireConn{c, t}
}

func (c *wireConn) send(b []byte) {
	c.t.Helper()
	// A broker may close before all is written; what it did is seen by reading.
	_, _ = c.Write(b)
}

// frame reads one response.
func (c *wireConn) frame() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(c, body)
	return body, err
}

// wantClosed checks that the broker ends the connection without an answer.
func (c *wireConn) wantClosed() {
	c.t.Helper()
	b, err := c.frame()
	var timeout net.Error
	if err == nil || (errors.As(err, &timeout) && timeout.Timeout()) {
		c.t.Errorf("the connection was not closed: answer %x, %v", b, err)
	}
}

// rawFrame is a request frame: the announced size, then the bytes.
func rawFrame(announced int32, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(announced)), body...)
}

// rawHeader is a version 1 request header.
func rawHeader(key, version int16) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, 77) // correlation id
	return append(b, 0, 1, 'x')              // client id
}

func TestMalformedFramesOnlyCostTheirConnection(t *testing.T) {
	c := single(t, nil)
	node := c.Nodes[0]
	must(t, workload.CreateTopic(deadline(t, 20*time.Second), c.Bootstrap(), "healthy", 1, 1, nil))
	load, err := workload.Start(c.Bootstrap(), workload.Options{Topic: "healthy", Partitions: 1, RecordBytes: 100, Every: time.Millisecond})
	must(t, err)
	for name, input := range map[string][]byte{
		"longer than socket.request.max.bytes": rawFrame(104857601, nil),
		"almost 2 GiB":                         rawFrame(1<<31-1, bytes.Repeat([]byte{1}, 1000)),
		"negative length":                      rawFrame(-1, nil),
		"most negative length":                 rawFrame(-1<<31, nil),
		"shorter than a header":                rawFrame(3, []byte{0, 18, 0}),
		"empty frame":                          rawFrame(0, nil),
		"unknown key":                          rawFrame(11, rawHeader(9999, 0)),
		"negative key":                         rawFrame(11, rawHeader(-1, 0)),
		"version too high":                     rawFrame(11, rawHeader(3, 99)),
		"negative version":                     rawFrame(11, rawHeader(3, -1)),
		"body missing":                         rawFrame(11, rawHeader(0, 9)),
		"not Kafka at all":                     []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"array length of 2 billion":            rawFrame(15, append(rawHeader(3, 0), 0x7f, 0xff, 0xff, 0xff)),
		"string longer than the frame":         rawFrame(10, []byte{0, 3, 0, 0, 0, 0, 0, 1, 0x7f, 0xff}),
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialNode(t, node)
			conn.send(input)
			conn.wantClosed()
		})
	}
	must(t, load.WaitAcked(deadline(t, 20*time.Second), 100))
	must(t, load.Stop(deadline(t, 20*time.Second)))
	verify(t, c, "healthy", load.Ledger)
}

func TestUnknownApiVersionsVersionIsAnswered(t *testing.T) {
	c := single(t, nil)
	conn := dialNode(t, c.Nodes[0])
	conn.send(rawFrame(11, rawHeader(18, 99)))
	body, err := conn.frame()
	must(t, err)
	resp := kmsg.NewPtrApiVersionsResponse()
	if len(body) < 4 || binary.BigEndian.Uint32(body) != 77 {
		t.Fatalf("answer %x", body)
	}
	must(t, resp.ReadFrom(body[4:]))
	if resp.ErrorCode != kerr.UnsupportedVersion.Code || len(resp.ApiKeys) == 0 {
		t.Errorf("error code %d with %d keys", resp.ErrorCode, len(resp.ApiKeys))
	}
}

// TestAnnouncedFramesTakeNoMemory: 100 connections that announce 100 MB each and send almost nothing.
func TestAnnouncedFramesTakeNoMemory(t *testing.T) {
	c := single(t, nil)
	node := c.Nodes[0]
	before, err := node.Usage()
	must(t, err)
	for range 100 {
		conn := dialNode(t, node)
		conn.send(rawFrame(100_000_000, rawHeader(0, 9)))
	}
	// A request on a connection of its own is answered behind the others, so they have been read.
	must(t, workload.CreateTopic(deadline(t, 20*time.Second), c.Bootstrap(), "memory", 1, 1, nil))
	after, err := node.Usage()
	must(t, err)
	if grown := after.RSS - before.RSS; grown > 100<<20 {
		t.Errorf("%d MB more are resident", grown>>20)
	}
}

// oneBatch is an uncompressed batch with one record of the value.
func oneBatch(value []byte) *kmsg.RecordBatch {
	b := kmsg.NewRecordBatch()
	b.PartitionLeaderEpoch, b.Magic, b.NumRecords = -1, 2, 1
	b.FirstTimestamp = time.Now().UnixMilli()
	b.MaxTimestamp = b.FirstTimestamp
	b.ProducerID, b.ProducerEpoch, b.FirstSequence = -1, -1, -1
	b.Records = encodeRecord(kmsg.Record{Value: value})
	return &b
}

// encodeRecord is the record with its length in front.
func encodeRecord(r kmsg.Record) []byte {
	inner := []byte{0}                                    // attributes
	inner = kbin.AppendVarlong(inner, 0)                  // timestamp delta
	inner = kbin.AppendVarint(inner, 0)                   // offset delta
	inner = kbin.AppendVarint(inner, -1)                  // null key
	inner = kbin.AppendVarint(inner, int32(len(r.Value))) // value
	inner = append(inner, r.Value...)                     //
	inner = kbin.AppendVarint(inner, 0)                   // no headers
	return append(kbin.AppendVarint(nil, int32(len(inner))), inner...)
}

// seal gives the batch its length and CRC and encodes it.
func seal(b *kmsg.RecordBatch) []byte {
	const beforeLength, fixed = 12, 49
	b.Length = int32(fixed + len(b.Records))
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw[:beforeLength+int(b.Length)]
}

// produceRaw sends the bytes as the batch of partition 0 and returns the error code of the answer.
func (c *wireConn) produceRaw(topic string, raw []byte) (int16, error) {
	c.t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, -1, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = raw
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	c.send(kmsg.NewRequestFormatter(kmsg.FormatterClientID("bad")).AppendRequest(nil, req, 5))
	body, err := c.frame()
	if err != nil {
		return 0, err
	}
	resp := kmsg.NewPtrProduceResponse()
	resp.Version = 9
	if err := resp.ReadFrom(body[5:]); err != nil { // correlation id, no tags
		return 0, err
	}
	return resp.Topics[0].Partitions[0].ErrorCode, nil
}

func TestBadBatchesGetKafkasErrors(t *testing.T) {
	c := single(t, nil)
	must(t, workload.CreateTopic(deadline(t, 20*time.Second), c.Bootstrap(), "batches", 1, 1, nil))
	good := func() *kmsg.RecordBatch { return oneBatch([]byte("v")) }
	change := func(f func(*kmsg.RecordBatch)) []byte { b := good(); f(b); return seal(b) }
	damaged := seal(good())
	damaged[len(damaged)-1] ^= 0xff
	for _, tc := range []struct {
		name string
		raw  []byte
		want []*kerr.Error // any of them; nil: accepted
	}{
		{"good", seal(good()), nil},
		{"wrong CRC", damaged, []*kerr.Error{kerr.CorruptMessage}},
		{"record count too high", change(func(b *kmsg.RecordBatch) { b.NumRecords, b.LastOffsetDelta = 5, 4 }), []*kerr.Error{kerr.InvalidRecord}},
		{"count and last offset differ", change(func(b *kmsg.RecordBatch) { b.LastOffsetDelta = 3 }), []*kerr.Error{kerr.InvalidRecord}},
		{"no record", change(func(b *kmsg.RecordBatch) { b.NumRecords, b.Records = 0, nil }), []*kerr.Error{kerr.InvalidRecord}},
		{"negative count", change(func(b *kmsg.RecordBatch) { b.NumRecords = -1 }), []*kerr.Error{kerr.InvalidRecord, kerr.CorruptMessage}},
		{"base offset", change(func(b *kmsg.RecordBatch) { b.FirstOffset = 7 }), []*kerr.Error{kerr.InvalidRecord}},
		{"magic 1", change(func(b *kmsg.RecordBatch) { b.Magic = 1 }), []*kerr.Error{kerr.InvalidRecord}},
		{"control bit", change(func(b *kmsg.RecordBatch) { b.Attributes |= 1 << 5 }), []*kerr.Error{kerr.InvalidRecord}},
		{"cut off", seal(good())[:40], []*kerr.Error{kerr.CorruptMessage, kerr.InvalidRecord}},
		{"too large", seal(oneBatch(make([]byte, 1<<20+1))), []*kerr.Error{kerr.MessageTooLarge}},
		{"two batches", append(seal(good()), seal(good())...), []*kerr.Error{kerr.InvalidRecord}},
		{"unknown codec", change(func(b *kmsg.RecordBatch) { b.Attributes |= 7 }), []*kerr.Error{kerr.CorruptMessage, kerr.InvalidRecord, kerr.UnsupportedCompressionType}},
		{"compressed rubbish", change(func(b *kmsg.RecordBatch) { b.Attributes |= 1 }), []*kerr.Error{kerr.CorruptMessage}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, err := dialNode(t, c.Nodes[0]).produceRaw("batches", tc.raw)
			must(t, err)
			got := kerr.ErrorForCode(code)
			for _, w := range tc.want {
				if errors.Is(got, w) {
					return
				}
			}
			if got != nil || tc.want != nil {
				t.Errorf("answer %v, want %v", got, tc.want)
			}
		})
	}
	records, err := workload.Read(deadline(t, 20*time.Second), c.Bootstrap(), "batches")
	must(t, err)
	if len(records) != 1 {
		t.Errorf("%d records are stored, want the good one alone", len(records))
	}
}

// TestExplodingBatchIsRefused: a few hundred kilobytes that decompress to a gigabyte.
func TestExplodingBatchIsRefused(t *testing.T) {
	c := single(t, nil)
	node := c.Nodes[0]
	must(t, workload.CreateTopic(deadline(t, 20*time.Second), c.Bootstrap(), "bomb", 1, 1, nil))
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	must(t, err)
	zeros := make([]byte, 1<<20)
	_, err = z.Write(kbin.AppendVarint(nil, 900<<20)) // one record of 900 MiB
	must(t, err)
	for range 900 {
		_, err := z.Write(zeros)
		must(t, err)
	}
	must(t, z.Close())
	before, err := node.Usage()
	must(t, err)
	b := oneBatch(nil)
	b.Attributes, b.Records = 1, packed.Bytes()
	code, err := dialNode(t, node).produceRaw("bomb", seal(b))
	if err == nil && code == 0 {
		t.Error("the batch was accepted")
	}
	after, err := node.Usage()
	must(t, err)
	if grown := after.PeakRSS - before.PeakRSS; grown > 300<<20 {
		t.Errorf("%d MB more were resident at the peak (batch of %d KB)", grown>>20, packed.Len()>>10)
	}
	must(t, workload.CreateTopic(deadline(t, 20*time.Second), c.Bootstrap(), "after-the-bomb", 1, 1, nil))
}

// TestHalfSentFrameDoesNotHoldOthersUp: a frame of which half is sent, and connections that come and go.
func TestHalfSentFrameDoesNotHoldOthersUp(t *testing.T) {
	c := single(t, nil)
	half := dialNode(t, c.Nodes[0])
	half.send(rawFrame(100, rawHeader(3, 1)))
	for range 200 {
		must(t, dialNode(t, c.Nodes[0]).Close())
	}
	must(t, workload.CreateTopic(deadline(t, 20*time.Second), c.Bootstrap(), "others", 1, 1, nil))
	must(t, half.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	if _, err := half.frame(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the half frame got %v, want to be waited for", err)
	}
}
