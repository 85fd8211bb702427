package raftgroup

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"testing"

	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/ids"
)

func flatten(b net.Buffers) []byte {
	var all []byte
	for _, p := range b {
		all = append(all, p...)
	}
	return all
}

func decodeFrame(t testing.TB, frame []byte) ([]raftpb.Message, error) {
	t.Helper()
	msgs, _, err := decodeMarked(t, frame)
	return msgs, err
}

// decodeMarked also returns the high watermarks that came with the messages.
func decodeMarked(t testing.TB, frame []byte) ([]raftpb.Message, []ids.Offset, error) {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(frame))
	h, err := readFrameHeader(r)
	if err != nil {
		return nil, nil, err
	}
	if h.kind != frameMessages {
		return nil, nil, errFrame
	}
	dec := messageDecoder{r: r}
	return dec.messages(h)
}

func entry(index uint64, size int) raftpb.Entry {
	cmd := make([]byte, size)
	for i := 1; i < size; i++ {
		cmd[i] = byte(index) + byte(i)
	}
	return raftpb.Entry{Term: 7, Index: index, Type: raftpb.EncodedEntry, Key: rand.Uint64(), ClientID: rand.Uint64(), SeriesID: 3, RespondedTo: 4, Cmd: cmd}
}

func sampleMessages() []raftpb.Message {
	cc := raftpb.ConfigChange{Type: raftpb.AddNode, ReplicaID: 3, Address: "node-3"}
	ccBytes, _ := cc.Marshal()
	return []raftpb.Message{
		{Type: raftpb.Heartbeat, To: 2, From: 1, ShardID: 5, Term: 7, Commit: 99, Hint: 1 << 60, HintHigh: 3},
		{Type: raftpb.Replicate, To: 2, From: 1, ShardID: 5, Term: 7, LogTerm: 6, LogIndex: 9, Commit: 8, Entries: []raftpb.Entry{
			entry(10, 100), entry(11, 1), entry(12, 64<<10), entry(13, 3<<20), entry(14, 200),
			{Term: 7, Index: 15, Type: raftpb.ApplicationEntry},
			{Term: 7, Index: 16, Type: raftpb.ConfigChangeEntry, Key: 5, Cmd: ccBytes},
		}},
		{Type: raftpb.ReplicateResp, To: 2, From: 1, ShardID: 5, Term: 7, LogIndex: 1 << 40, Reject: true, Hint: 3},
	}
}

// sampleMarks are high watermarks for sampleMessages.
var sampleMarks = []ids.Offset{1<<63 - 1, 300, 0}

func TestMessagesRoundTrip(t *testing.T) {
	want := sampleMessages()
	var enc messageEncoder
	for range 3 { // buffers are reused
		got, marks, err := decodeMarked(t, flatten(enc.encode(want, sampleMarks)))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) || !slices.Equal(marks, sampleMarks) {
			t.Fatalf("decoded %+v with high watermarks %v", got, marks)
		}
		enc.release()
	}
}

func TestLongCommandsAreNotCopiedByTheEncoder(t *testing.T) {
	msgs := sampleMessages()
	var enc messageEncoder
	found := 0
	for _, b := range enc.encode(msgs, nil) {
		for _, e := range msgs[1].Entries {
			if len(e.Cmd) >= inlineCmdBytes && &b[0] == &e.Cmd[0] {
				found++
			}
		}
	}
	if found != 2 {
		t.Fatalf("%d of 2 long commands leave as they lie", found)
	}
}

func TestCommandsOfDifferentMessagesDoNotShareMemory(t *testing.T) {
	msgs := []raftpb.Message{
		{Type: raftpb.Replicate, To: 2, From: 1, ShardID: 5, Term: 7, LogIndex: 9, Entries: []raftpb.Entry{entry(10, 100)}},
		{Type: raftpb.Replicate, To: 2, From: 1, ShardID: 6, Term: 7, LogIndex: 9, Entries: []raftpb.Entry{entry(10, 700<<10), entry(11, 700<<10)}},
	}
	var enc messageEncoder
	got, err := decodeFrame(t, flatten(enc.encode(msgs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if c := cap(got[0].Entries[0].Cmd); c != 100 {
		t.Fatalf("short command has a buffer of %d bytes", c)
	}
	for _, e := range got[1].Entries {
		if len(e.Cmd) != cap(e.Cmd) {
			t.Fatalf("command of %d bytes could be appended to beyond itself: %d", len(e.Cmd), cap(e.Cmd))
		}
	}
}

func TestHostileFrames(t *testing.T) {
	var enc messageEncoder
	good := flatten(enc.encode(sampleMessages(), sampleMarks))
	for cut := 1; cut < len(good); cut += 1 + len(good)/300 {
		if _, err := decodeFrame(t, good[:cut]); err == nil || err == io.EOF {
			t.Fatalf("frame cut at %d of %d: %v", cut, len(good), err)
		}
	}
	one := func(m raftpb.Message) []byte { return flatten(enc.encode([]raftpb.Message{m}, nil)) }
	bad := map[string][]byte{
		"unknown kind":         appendFrameHeader(nil, frameHeader{kind: 9, meta: 1}),
		"huge meta":            appendFrameHeader(nil, frameHeader{kind: frameMessages, meta: maxMetaBytes + 1}),
		"huge payload":         appendFrameHeader(nil, frameHeader{kind: frameMessages, meta: 1, payload: maxPayloadBytes + 1}),
		"chunk with meta":      appendFrameHeader(nil, frameHeader{kind: frameChunk, meta: 1, payload: 1}),
		"reserved bytes":       {2, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0},
		"no messages":          append(appendFrameHeader(nil, frameHeader{kind: frameMessages, meta: 1}), 0),
		"too many messages":    append(appendFrameHeader(nil, frameHeader{kind: frameMessages, meta: 3}), 0xff, 0xff, 3),
		"local message":        one(raftpb.Message{Type: raftpb.LocalTick, To: 1, From: 2, ShardID: 3}),
		"snapshot message":     one(raftpb.Message{Type: raftpb.InstallSnapshot, To: 1, From: 2, ShardID: 3}),
		"no receiver":          one(raftpb.Message{Type: raftpb.Heartbeat, From: 2, ShardID: 3}),
		"no sender":            one(raftpb.Message{Type: raftpb.Heartbeat, To: 2, ShardID: 3}),
		"entries of an answer": one(raftpb.Message{Type: raftpb.ReplicateResp, To: 1, From: 2, ShardID: 3, Entries: []raftpb.Entry{entry(1, 5)}}),
		"mark of an answer":    flatten(enc.encode([]raftpb.Message{{Type: raftpb.ReplicateResp, To: 1, From: 2, ShardID: 3}}, []ids.Offset{1})),
		"mark below 0":         flatten(enc.encode([]raftpb.Message{{Type: raftpb.Heartbeat, To: 1, From: 2, ShardID: 3}}, []ids.Offset{-1})),
		"marks with payload":   appendFrameHeader(nil, frameHeader{kind: frameMarks, meta: 5, payload: 1}),
		"too many marks":       appendFrameHeader(nil, frameHeader{kind: frameMarks, meta: maxMarkBytes + 1}),
		"gap":                  one(raftpb.Message{Type: raftpb.Replicate, To: 1, From: 2, ShardID: 3, Entries: []raftpb.Entry{entry(2, 5)}}),
		"encoded, no payload":  one(raftpb.Message{Type: raftpb.Replicate, To: 1, From: 2, ShardID: 3, Entries: []raftpb.Entry{entry(1, 0)}}),
		"compressed":           one(raftpb.Message{Type: raftpb.Replicate, To: 1, From: 2, ShardID: 3, Entries: []raftpb.Entry{{Index: 1, Type: raftpb.EncodedEntry, Cmd: []byte{2, 1}}}}),
		"unknown entry type":   one(raftpb.Message{Type: raftpb.Replicate, To: 1, From: 2, ShardID: 3, Entries: []raftpb.Entry{{Index: 1, Type: 9}}}),
		"bad membership":       one(raftpb.Message{Type: raftpb.Replicate, To: 1, From: 2, ShardID: 3, Entries: []raftpb.Entry{{Index: 1, Type: raftpb.ConfigChangeEntry, Cmd: []byte{0xff}}}}),
	}
	for name, frame := range bad {
		if _, err := decodeFrame(t, frame); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// endless announces a large item and then sends a few bytes of it, so that the test sees what was allocated.
func TestAnnouncedBytesAreNotAllocatedBeforeTheyArrive(t *testing.T) {
	if testing.AllocsPerRun(1, func() {}) != 0 {
		t.Skip("allocations are counted by the instrumentation")
	}
	frame := appendFrameHeader(nil, frameHeader{kind: frameMessages, meta: maxMetaBytes})
	frame = append(frame, make([]byte, 1000)...)
	res := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decodeFrame(b, frame); !errors.Is(err, io.ErrUnexpectedEOF) {
				b.Fatal(err)
			}
		}
	})
	if got := res.AllocedBytesPerOp(); got > firstReadBytes+64<<10 {
		t.Fatalf("%d bytes allocated for a frame of %d", got, len(frame))
	}
}

func TestHelloRoundTrip(t *testing.T) {
	want := hello{from: 1<<31 - 1, to: 0, purpose: purposeWatch, process: 1 << 63}
	got, err := readHello(bufio.NewReader(bytes.NewReader(appendHello(nil, want))))
	if err != nil || got != want {
		t.Fatalf("%v, %v", got, err)
	}
	frame := appendHello(nil, want)
	for i := frameHeaderLen; i < len(frame); i++ {
		if _, err := decodeHello(frame[frameHeaderLen:i]); !errors.Is(err, errFrame) {
			t.Fatalf("hello cut at %d: %v", i, err)
		}
	}
}

func TestPrefaceIsNoKafkaFrame(t *testing.T) {
	size := int32(Preface[0])<<24 | int32(Preface[1])<<16 | int32(Preface[2])<<8 | int32(Preface[3])
	if size <= 1<<30 {
		t.Fatalf("preface reads as a frame of %d bytes", size)
	}
}

func sampleChunk() raftpb.Chunk {
	return raftpb.Chunk{
		ShardID: 5, ReplicaID: 2, From: 1, ChunkSize: 3, ChunkCount: 1, Data: []byte("abc"), Index: 40, Term: 7, DeploymentId: 1,
		Membership: raftpb.Membership{ConfigChangeId: 3, Addresses: map[uint64]string{1: "node-1", 2: "node-2"}},
		Filepath:   "/somewhere/snapshot-0000000000000028.gbsnap", FileSize: 3, FileChunkCount: 1, BinVer: raftio.TransportBinVersion, OnDiskIndex: 40,
	}
}

func TestChunkRoundTrip(t *testing.T) {
	want := sampleChunk()
	frame, err := encodeChunk(&want, []byte("start point"))
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(bytes.NewReader(frame))
	h, err := readFrameHeader(r)
	if err != nil {
		t.Fatal(err)
	}
	b, err := readPayload(r, h)
	if err != nil {
		t.Fatal(err)
	}
	got, start, err := decodeChunk(b)
	if err != nil || string(start) != "start point" || got.Index != 40 || string(got.Data) != "abc" || !reflect.DeepEqual(got.Membership.Addresses, want.Membership.Addresses) {
		t.Fatalf("%+v %q %v", got, start, err)
	}
}

func TestHostileChunks(t *testing.T) {
	for name, spoil := range map[string]func(*raftpb.Chunk){
		"directory":      func(c *raftpb.Chunk) { c.Filepath = "/a/.." },
		"other file":     func(c *raftpb.Chunk) { c.Filepath = "dragonboat.ds" },
		"external file":  func(c *raftpb.Chunk) { c.HasFileInfo = true },
		"witness":        func(c *raftpb.Chunk) { c.Witness = true },
		"no shard":       func(c *raftpb.Chunk) { c.ShardID = 0 },
		"no index":       func(c *raftpb.Chunk) { c.Index = 0 },
		"no members":     func(c *raftpb.Chunk) { c.Membership = raftpb.Membership{} },
		"other messages": func(c *raftpb.Chunk) { c.BinVer = 1 },
	} {
		c := sampleChunk()
		spoil(&c)
		frame, err := encodeChunk(&c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := decodeChunk(frame[frameHeaderLen:]); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzFrame(f *testing.F) {
	var enc messageEncoder
	msgs := sampleMessages()
	msgs[1].Entries = msgs[1].Entries[:2]
	f.Add(flatten(enc.encode(msgs, nil)))
	f.Add(appendHello(nil, hello{from: 1, to: 2, purpose: purposeMessages}))
	f.Fuzz(func(t *testing.T, frame []byte) {
		got, marks, err := decodeMarked(t, frame)
		if err != nil {
			return
		}
		var enc messageEncoder
		again, marksAgain, err := decodeMarked(t, flatten(enc.encode(got, marks)))
		if err != nil {
			t.Fatalf("re-encoded frame: %v", err)
		}
		if !reflect.DeepEqual(got, again) || !slices.Equal(marks, marksAgain) {
			t.Fatalf("%+v %v became %+v %v", got, marks, again, marksAgain)
		}
	})
}

func TestMarksRoundTrip(t *testing.T) {
	want := []watermark{{1, 2, 3, 4}, {1 << 40, 1 << 20, 1<<20 + 1, 1<<63 - 1}}
	frame := appendMarks(nil, want)
	r := bufio.NewReader(bytes.NewReader(frame))
	h, err := readFrameHeader(r)
	if err != nil || h.kind != frameMarks {
		t.Fatalf("%+v %v", h, err)
	}
	dec := messageDecoder{r: r}
	if got, err := dec.watermarks(h); err != nil || !slices.Equal(got, want) {
		t.Fatalf("%v %v", got, err)
	}
	meta := frame[frameHeaderLen:]
	for i := range meta {
		if _, err := decodeMarks(meta[:i]); !errors.Is(err, errFrame) {
			t.Fatalf("cut at %d of %d: %v", i, len(meta), err)
		}
	}
	for name, bad := range map[string][]byte{
		"none":           {0},
		"too many":       {0xff, 0xff, 3, 1, 1, 1, 1},
		"no shard":       {1, 0, 1, 1, 1},
		"no receiver":    {1, 1, 0, 1, 1},
		"no sender":      {1, 1, 1, 0, 1},
		"no watermark":   {1, 1, 1, 1, 0},
		"something left": {1, 1, 1, 1, 1, 1},
		"below 0":        {1, 1, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
	} {
		if _, err := decodeMarks(bad); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAFullFrameOfMarksIsWithinItsBound(t *testing.T) {
	full := slices.Repeat([]watermark{{1<<63 - 1, 1<<63 - 1, 1<<63 - 1, 1<<63 - 1}}, marksPerFrame)
	if n := len(appendMarks(nil, full)) - frameHeaderLen; n > maxMarkBytes {
		t.Fatalf("%d bytes, bound %d", n, maxMarkBytes)
	}
}

func FuzzMarks(f *testing.F) {
	f.Add(appendMarks(nil, []watermark{{1, 2, 3, 4}})[frameHeaderLen:])
	f.Fuzz(func(t *testing.T, meta []byte) {
		got, err := decodeMarks(meta)
		if err != nil {
			return
		}
		again, err := decodeMarks(appendMarks(nil, got)[frameHeaderLen:])
		if err != nil || !slices.Equal(got, again) {
			t.Fatalf("%v became %v, %v", got, again, err)
		}
	})
}

func FuzzChunk(f *testing.F) {
	c := sampleChunk()
	frame, _ := encodeChunk(&c, []byte("start"))
	f.Add(frame[frameHeaderLen:])
	f.Fuzz(func(t *testing.T, b []byte) { _, _, _ = decodeChunk(b) })
}

func FuzzHello(f *testing.F) {
	f.Add(appendHello(nil, hello{from: 1, to: 2, purpose: purposeMessages})[frameHeaderLen:])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHello(b)
		if err != nil {
			return
		}
		if again, err := decodeHello(appendHello(nil, h)[frameHeaderLen:]); err != nil || again != h {
			t.Fatalf("%v became %v, %v", h, again, err)
		}
	})
}

// BenchmarkEncode and BenchmarkDecode move a batch of 16 entries of 64 KiB.
func BenchmarkEncode(b *testing.B) {
	m := raftpb.Message{Type: raftpb.Replicate, To: 2, From: 1, ShardID: 5, Term: 7}
	for i := range uint64(16) {
		m.Entries = append(m.Entries, entry(i+1, 64<<10))
	}
	reqs := []raftpb.Message{m}
	var enc messageEncoder
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		enc.encode(reqs, nil)
		enc.release()
	}
}

func BenchmarkDecode(b *testing.B) {
	m := raftpb.Message{Type: raftpb.Replicate, To: 2, From: 1, ShardID: 5, Term: 7}
	for i := range uint64(16) {
		m.Entries = append(m.Entries, entry(i+1, 64<<10))
	}
	var enc messageEncoder
	frame := flatten(enc.encode([]raftpb.Message{m}, nil))
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	src := bytes.NewReader(nil)
	r := bufio.NewReaderSize(src, 64<<10)
	dec := messageDecoder{r: r}
	for b.Loop() {
		src.Reset(frame)
		r.Reset(src)
		h, err := readFrameHeader(r)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := dec.messages(h); err != nil {
			b.Fatal(err)
		}
	}
}
