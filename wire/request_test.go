package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// withClientID is a request frame without length prefix.
func withClientID(id string, req kmsg.Request) []byte { return appendRequest(nil, id, req)[4:] }

func TestParseRequestOfEveryKeyAndVersion(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, api := range APIs() {
		for version := api.Min; version <= api.Max; version++ {
			for range 30 {
				want := kmsg.RequestForKey(api.Key)
				fillRandom(reflect.ValueOf(want).Elem(), rng)
				namedTopics(want)
				want.SetVersion(version)
				frame := withClientID("client", want)
				binary.BigEndian.PutUint32(frame[4:], 77)
				h, got, err := ParseRequest(frame)
				if err != nil {
					t.Fatalf("%s v%d: %v", api.Name, version, err)
				}
				if h != (Header{Key: api.Key, Version: version, CorrelationID: 77, ClientID: "client"}) || got.GetVersion() != version || got.Key() != api.Key {
					t.Fatalf("%s v%d: header %+v, request of version %d", api.Name, version, h, got.GetVersion())
				}
				reference := kmsg.RequestForKey(api.Key)
				reference.SetVersion(version)
				if err := reference.ReadFrom(want.AppendTo(nil)); err != nil {
					t.Fatal(err)
				}
				if a, b := withoutTags(reference).AppendTo(nil), withoutTags(got).AppendTo(nil); !bytes.Equal(a, b) {
					t.Fatalf("%s v%d: read\n%x\nwant\n%x", api.Name, version, b, a)
				}
			}
		}
	}
}

// namedTopics makes a random produce request one that parseProduce takes.
func namedTopics(req kmsg.Request) {
	p, ok := req.(*kmsg.ProduceRequest)
	if !ok {
		return
	}
	for i := range p.Topics {
		p.Topics[i].Topic = "t" + p.Topics[i].Topic
		p.Topics[i].Partitions = append(p.Topics[i].Partitions, kmsg.ProduceRequestTopicPartition{Partition: 9})
	}
}

// withoutTags drops the unknown tags of a produce request, which our parser passes over.
func withoutTags(req kmsg.Request) kmsg.Request {
	p, ok := req.(*kmsg.ProduceRequest)
	if !ok {
		return req
	}
	p.UnknownTags = kmsg.Tags{}
	for i := range p.Topics {
		p.Topics[i].UnknownTags = kmsg.Tags{}
		for j := range p.Topics[i].Partitions {
			p.Topics[i].Partitions[j].UnknownTags = kmsg.Tags{}
		}
	}
	return req
}

func TestParseRequestHeader(t *testing.T) {
	metadata := kmsg.NewPtrMetadataRequest()
	for version := range int16(14) {
		metadata.SetVersion(version)
		frame := withClientID("abc", metadata)
		null := append(append(bytes.Clone(frame[:8]), 0xff, 0xff), frame[13:]...)
		h, _, err := ParseRequest(null)
		if err != nil || h.ClientID != "" {
			t.Errorf("v%d, null client id: %+v, %v", version, h, err)
		}
		for n := range frame {
			if _, _, err := ParseRequest(frame[:n:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("v%d, %d of %d bytes: %v", version, n, len(frame), err)
			}
		}
	}
	frame := withClientID("abc", metadata)
	for name, change := range map[string]func(b []byte) []byte{
		"client id of -2 bytes":       func(b []byte) []byte { b[8], b[9] = 0xff, 0xfe; return b },
		"client id of 32767 bytes":    func(b []byte) []byte { b[8], b[9] = 0x7f, 0xff; return b },
		"tag longer than the frame":   func(b []byte) []byte { return append(b[:13], 1, 0, 0xff, 0xff, 0xff, 0x7f) },
		"four billion tags":           func(b []byte) []byte { return append(b[:13], 0xff, 0xff, 0xff, 0xff, 0x0f) },
		"tag count of six bytes":      func(b []byte) []byte { return append(b[:13], 0x80, 0x80, 0x80, 0x80, 0x80, 0) },
		"tag count beyond 32 bits":    func(b []byte) []byte { return append(b[:13], 0xff, 0xff, 0xff, 0xff, 0x7f) },
		"array of two billion topics": func(b []byte) []byte { return append(b[:14], 0xff, 0xff, 0xff, 0xff, 0x07) },
	} {
		if _, _, err := ParseRequest(change(bytes.Clone(frame))); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	tagged := append(bytes.Clone(frame[:13]), 1, 5, 2, 'x', 'y')
	if _, _, err := ParseRequest(append(tagged, frame[14:]...)); err != nil {
		t.Errorf("unknown tag in the header: %v", err)
	}
}

func TestParseRequestOfWhatIsNotOffered(t *testing.T) {
	header := func(key, version int16) []byte {
		b := binary.BigEndian.AppendUint16(nil, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		return append(b, 0, 0, 0, 9, 0xff, 0xff)
	}
	tests := []struct {
		name         string
		key, version int16
		want         error
	}{
		{"removed key", int16(kmsg.LeaderAndISR), 0, ErrUnknownKey},
		{"key not offered", int16(kmsg.Vote), 0, ErrUnknownKey},
		{"negative key", -1, 0, ErrUnknownKey},
		{"private key", PrivateKeyMin, 0, ErrUnknownKey},
		{"produce 2, though announced", int16(kmsg.Produce), 2, ErrUnsupportedVersion},
		{"produce 14", int16(kmsg.Produce), 14, ErrUnsupportedVersion},
		{"fetch 3", int16(kmsg.Fetch), 3, ErrUnsupportedVersion},
		{"negative version", int16(kmsg.Metadata), -1, ErrUnsupportedVersion},
		{"ApiVersions of the future", int16(kmsg.ApiVersions), 99, ErrUnsupportedVersion},
		{"producer id for two-phase commit", int16(kmsg.InitProducerID), 6, ErrUnsupportedVersion},
	}
	for _, tt := range tests {
		h, req, err := ParseRequest(header(tt.key, tt.version))
		if !errors.Is(err, tt.want) || req != nil || h.Key != tt.key || h.Version != tt.version || h.CorrelationID != 9 {
			t.Errorf("%s: %+v, %v", tt.name, h, err)
		}
	}
}

func TestAPITable(t *testing.T) {
	for _, a := range APIs() {
		req := kmsg.RequestForKey(a.Key)
		if a.Min < 0 || a.Min > a.Max || a.Max > req.MaxVersion() || a.AnnouncedMin > a.Min || a.Internal && !a.Controller {
			t.Errorf("%+v, kmsg knows up to %d", a, req.MaxVersion())
		}
		if a.AnnouncedMin != a.Min && a.Key != int16(kmsg.Produce) {
			t.Errorf("%s announces %d", a.Name, a.AnnouncedMin)
		}
	}
	p, ok := standard.Lookup(int16(kmsg.Produce))
	if !ok || p.AnnouncedMin != 0 || p.Min != 3 || p.Max != 13 {
		t.Errorf("Produce: %+v", p)
	}
}

// The records of a produce request are those of the frame, not copies.
func TestProduceRecordsAliasTheFrame(t *testing.T) {
	for version := int16(3); version <= 13; version++ {
		req := produceRequest(version, 2, 3, []byte("records"))
		frame := withClientID("c", req)
		_, got, err := ParseRequest(frame)
		if err != nil {
			t.Fatal(err)
		}
		for i := range frame {
			frame[i] ^= 0xff
		}
		for _, topic := range got.(*kmsg.ProduceRequest).Topics {
			for _, p := range topic.Partitions {
				if want := []byte("records"); !bytes.Equal(xor(p.Records), want) {
					t.Fatalf("v%d: %q", version, p.Records)
				}
			}
		}
	}
}

func xor(b []byte) []byte {
	b = bytes.Clone(b)
	for i := range b {
		b[i] ^= 0xff
	}
	return b
}

func produceRequest(version int16, topics, partitions int, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(version)
	req.Acks, req.TimeoutMillis = -1, 1000
	for range topics {
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic, topic.TopicID = "topic", [16]byte{1}
		for p := range partitions {
			topic.Partitions = append(topic.Partitions, kmsg.ProduceRequestTopicPartition{Partition: int32(p), Records: records})
		}
		req.Topics = append(req.Topics, topic)
	}
	return req
}

func TestProduceWithoutNameOrPartitionIsMalformed(t *testing.T) {
	for version := int16(3); version <= 13; version++ {
		empty := produceRequest(version, 1, 0, nil)
		if _, _, err := ParseRequest(withClientID("c", empty)); !errors.Is(err, ErrMalformed) {
			t.Errorf("v%d without partitions: %v", version, err)
		}
		if version >= 13 {
			continue
		}
		nameless := produceRequest(version, 1, 1, nil)
		nameless.Topics[0].Topic = ""
		if _, _, err := ParseRequest(withClientID("c", nameless)); !errors.Is(err, ErrMalformed) {
			t.Errorf("v%d without name: %v", version, err)
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, api := range APIs() {
		for version := api.Min; version <= api.Max; version++ {
			req := kmsg.RequestForKey(api.Key)
			fillRandom(reflect.ValueOf(req).Elem(), rng)
			namedTopics(req)
			req.SetVersion(version)
			f.Add(withClientID("fuzz", req))
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, req, err := ParseRequest(frame)
		if err != nil {
			return
		}
		again := withClientID(h.ClientID, req)
		h2, req2, err := ParseRequest(again)
		h2.CorrelationID = h.CorrelationID
		if err != nil || h2 != h {
			t.Fatalf("read back: %+v, was %+v, %v", h2, h, err)
		}
		if a, b := withClientID("", req), withClientID("", req2); !bytes.Equal(a, b) {
			t.Fatalf("read back\n%x\nwas\n%x", b, a)
		}
	})
}
