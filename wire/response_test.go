package wire

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAppendResponse(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, api := range APIs() {
		for version := api.Min; version <= api.Max; version++ {
			resp := kmsg.ResponseForKey(api.Key)
			fillRandom(reflect.ValueOf(resp).Elem(), rng)
			got := AppendResponse([]byte("before"), Header{Key: api.Key, Version: version, CorrelationID: 5}, resp)
			resp.SetVersion(version)
			want := []byte{0, 0, 0, 5}
			if resp.IsFlexible() && api.Key != int16(kmsg.ApiVersions) {
				want = append(want, 0)
			}
			want = append([]byte("before"), frameOf(resp.AppendTo(want))...)
			if !bytes.Equal(got, want) {
				t.Errorf("%s v%d:\n%x\nwant\n%x", api.Name, version, got, want)
			}
		}
	}
}

func TestApiVersionsOfUnknownVersionIsAnsweredInVersion0(t *testing.T) {
	for _, version := range []int16{5, 99, -1} {
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.ErrorCode = 35
		resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: 18, MaxVersion: 4})
		got := AppendResponse(nil, Header{Key: int16(kmsg.ApiVersions), Version: version, CorrelationID: 1}, resp)
		want := []byte{0, 0, 0, 16, 0, 0, 0, 1, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 4}
		if !bytes.Equal(got, want) {
			t.Errorf("v%d: %x, want %x", version, got, want)
		}
	}
}

// randomFetch is a fetch response in our form and in kmsg's.
func randomFetch(rng *rand.Rand) (*FetchResponse, *kmsg.FetchResponse) {
	k := kmsg.NewPtrFetchResponse()
	fillRandom(reflect.ValueOf(k).Elem(), rng)
	k.UnknownTags = kmsg.Tags{}
	ours := &FetchResponse{ThrottleMillis: k.ThrottleMillis, ErrorCode: k.ErrorCode, SessionID: k.SessionID}
	for i := range k.Brokers {
		b := &k.Brokers[i]
		b.UnknownTags = kmsg.Tags{}
		ours.NodeEndpoints = append(ours.NodeEndpoints, NodeEndpoint{b.NodeID, b.Host, b.Port, b.Rack})
	}
	for i := range k.Topics {
		kt := &k.Topics[i]
		kt.UnknownTags = kmsg.Tags{}
		topic := FetchTopic{Topic: kt.Topic, TopicID: kt.TopicID}
		for j := range kt.Partitions {
			topic.Partitions = append(topic.Partitions, randomFetchPartition(&kt.Partitions[j], rng))
		}
		ours.Topics = append(ours.Topics, topic)
	}
	return ours, k
}

func randomFetchPartition(kp *kmsg.FetchResponseTopicPartition, rng *rand.Rand) FetchPartition {
	kp.UnknownTags, kp.DivergingEpoch.UnknownTags, kp.CurrentLeader.UnknownTags = kmsg.Tags{}, kmsg.Tags{}, kmsg.Tags{}
	kp.SnapshotID = kmsg.NewFetchResponseTopicPartitionSnapshotID()
	p := NewFetchPartition(kp.Partition, kp.ErrorCode)
	p.HighWatermark, p.LastStableOffset, p.LogStartOffset = kp.HighWatermark, kp.LastStableOffset, kp.LogStartOffset
	p.PreferredReadReplica = kp.PreferredReadReplica
	p.DivergingEpoch, p.DivergingEndOffset = kp.DivergingEpoch.Epoch, kp.DivergingEpoch.EndOffset
	p.CurrentLeaderID, p.CurrentLeaderEpoch = kp.CurrentLeader.LeaderID, kp.CurrentLeader.LeaderEpoch
	if kp.AbortedTransactions != nil {
		p.AbortedTransactions = []AbortedTransaction{}
	}
	for i := range kp.AbortedTransactions {
		a := &kp.AbortedTransactions[i]
		a.UnknownTags = kmsg.Tags{}
		p.AbortedTransactions = append(p.AbortedTransactions, AbortedTransaction{a.ProducerID, a.FirstOffset})
	}
	kp.RecordBatches = []byte{}
	for range rng.IntN(4) {
		part := make([]byte, rng.IntN(200))
		for i := range part {
			part[i] = byte(rng.Int())
		}
		p.Records = append(p.Records, part)
		kp.RecordBatches = append(kp.RecordBatches, part...)
	}
	return p
}

func TestFetchResponseIsThatOfKmsg(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for version := int16(4); version <= 18; version++ {
		for range 200 {
			ours, theirs := randomFetch(rng)
			h := Header{Key: int16(kmsg.Fetch), Version: version, CorrelationID: 3}
			var got []byte
			for _, b := range EncodeFetchResponse(h, ours) {
				if len(b) == 0 {
					t.Fatal("empty buffer")
				}
				got = append(got, b...)
			}
			if want := AppendResponse(nil, h, theirs); !bytes.Equal(got, want) {
				t.Fatalf("v%d: %+v\n%x\nwant\n%x", version, ours, got, want)
			}
		}
	}
}

func TestFetchResponseSplicesRecords(t *testing.T) {
	a, b := bytes.Repeat([]byte("a"), 1<<20), bytes.Repeat([]byte("b"), 1<<20)
	p := NewFetchPartition(0, 0)
	p.Records = [][]byte{a, b}
	r := &FetchResponse{Topics: []FetchTopic{{Topic: "t", Partitions: []FetchPartition{p, NewFetchPartition(1, 6), p}}}}
	for version := int16(4); version <= 18; version++ {
		bufs := EncodeFetchResponse(Header{Key: 1, Version: version}, r)
		spliced := 0
		for _, buf := range bufs {
			if &buf[0] == &a[0] || &buf[0] == &b[0] {
				spliced++
			}
		}
		if spliced != 4 || len(bufs) > 7 {
			t.Errorf("v%d: %d buffers, %d of them records", version, len(bufs), spliced)
		}
	}
}

// The fetch path allocates the list of buffers and what lies between the records, however many partitions there are.
func TestFetchResponseAllocations(t *testing.T) {
	skipUnderRace(t)
	r := &FetchResponse{}
	for range 10 {
		topic := FetchTopic{Topic: "some-topic"}
		for i := range int32(10) {
			p := NewFetchPartition(i, 0)
			p.Records = [][]byte{make([]byte, 100), make([]byte, 100)}
			topic.Partitions = append(topic.Partitions, p)
		}
		r.Topics = append(r.Topics, topic)
	}
	for _, version := range []int16{4, 11, 12, 16} {
		if got := testing.AllocsPerRun(50, func() { EncodeFetchResponse(Header{Key: 1, Version: version}, r) }); got > 2 {
			t.Errorf("v%d: %v allocations", version, got)
		}
	}
}

// A produce response through kmsg allocates nothing of its own once the buffer is there.
func TestProduceResponseAllocations(t *testing.T) {
	skipUnderRace(t)
	resp := kmsg.NewPtrProduceResponse()
	topic := kmsg.NewProduceResponseTopic()
	topic.Partitions = make([]kmsg.ProduceResponseTopicPartition, 12)
	for i := range topic.Partitions {
		topic.Partitions[i] = kmsg.NewProduceResponseTopicPartition()
	}
	resp.Topics = append(resp.Topics, topic)
	buf := make([]byte, 0, 4096)
	for _, version := range []int16{3, 9, 13} {
		got := testing.AllocsPerRun(50, func() { AppendResponse(buf, Header{Version: version}, resp) })
		if got > 0 {
			t.Errorf("v%d: %v allocations", version, got)
		}
	}
}

func TestProduceParserAllocations(t *testing.T) {
	skipUnderRace(t)
	frame := withClientID("client", produceRequest(9, 1, 12, make([]byte, 16<<10)))
	// the request, client id, topic name, topics, partitions
	if got := testing.AllocsPerRun(50, func() {
		if _, _, err := ParseRequest(frame); err != nil {
			t.Fatal(err)
		}
	}); got > 5 {
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkEncodeFetchResponse(b *testing.B) {
	r := &FetchResponse{}
	topic := FetchTopic{Topic: "some-topic"}
	for i := range int32(12) {
		p := NewFetchPartition(i, 0)
		p.Records = [][]byte{make([]byte, 64<<10), make([]byte, 64<<10)}
		topic.Partitions = append(topic.Partitions, p)
	}
	r.Topics = append(r.Topics, topic)
	b.ReportAllocs()
	for b.Loop() {
		EncodeFetchResponse(Header{Key: 1, Version: 12}, r)
	}
}

func BenchmarkAppendProduceResponse(b *testing.B) {
	resp := kmsg.NewPtrProduceResponse()
	topic := kmsg.NewProduceResponseTopic()
	topic.Topic = "some-topic"
	topic.Partitions = append(topic.Partitions, kmsg.NewProduceResponseTopicPartition())
	resp.Topics = append(resp.Topics, topic)
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendResponse(buf[:0], Header{Version: 9}, resp)
	}
	if int(binary.BigEndian.Uint32(buf)) != len(buf)-4 {
		b.Fatal("length prefix")
	}
}
