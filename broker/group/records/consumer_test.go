package records

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"cairn/internal/ids"
)

// kafkaBytes is what Kafka's own encoder makes of the values of these tests.
func kafkaBytes(t testing.TB) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/consumer-kafka-4.3.1.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		name, digits, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || name == "#" {
			continue
		}
		if out[name], err = hex.DecodeString(digits); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func ref(s string) *string { return &s }

type value interface{ Encode() []byte }

// decoders are those of all values, by a value of their type.
func decodeLike(like value, b []byte) (value, error) {
	switch like.(type) {
	case ConsumerGroup:
		return DecodeConsumerGroup(b)
	case TargetAssignment:
		return DecodeTargetAssignment(b)
	case TargetMember:
		return DecodeTargetMember(b)
	case CurrentAssignment:
		return DecodeCurrentAssignment(b)
	case ConsumerMember:
		return DecodeConsumerMember(b)
	default:
		return DecodeRegularExpression(b)
	}
}

func TestConsumerValuesAreKafkas(t *testing.T) {
	one := ids.UUID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	two := one
	two[0] = 0x11
	golden := kafkaBytes(t)
	for name, v := range map[string]value{
		"group":         ConsumerGroup{Epoch: 7, MetadataHash: -2},
		"group-nohash":  ConsumerGroup{Epoch: 7},
		"target":        TargetAssignment{Epoch: 9, Timestamp: 1700000000000},
		"target-notime": TargetAssignment{Epoch: 9},
		"target-member": TargetMember{Partitions: map[ids.UUID][]int32{one: {0, 3}, two: {1}}},
		"current": CurrentAssignment{
			Epoch: 9, Previous: 8, State: 1,
			Assigned: map[ids.UUID]map[int32]int32{one: {0: 9, 3: 5}}, Revoking: map[ids.UUID]map[int32]int32{two: {1: 4}},
		},
		"member": ConsumerMember{
			ClientID: "c", ClientHost: "/127.0.0.1", Topics: []string{"a", "b"}, Regex: ref("x.*"),
			RebalanceTimeoutMillis: 300000, Assignor: ref("range"),
		},
		"member-classic": ConsumerMember{
			InstanceID: ref("i"), RackID: ref("r"), ClientID: "c", ClientHost: "h", RebalanceTimeoutMillis: -1,
			Classic: &ClassicMember{SessionTimeoutMillis: 6000, Protocols: []ClassicProtocol{{"range", []byte{1, 2}}, {"cooperative-sticky", []byte{}}}},
		},
		"regex": RegularExpression{Topics: []string{"a1", "a2"}, Version: 12, Timestamp: 1700000000000},
	} {
		if got := v.Encode(); !bytes.Equal(got, golden[name]) {
			t.Errorf("%s: %x, Kafka writes %x", name, got, golden[name])
		}
		got, err := decodeLike(v, golden[name])
		if err != nil || !reflect.DeepEqual(got, v) {
			t.Errorf("%s: read %+v, %v, want %+v", name, got, err, v)
		}
		for i := range golden[name] {
			if _, err := decodeLike(v, golden[name][:i]); err == nil {
				t.Errorf("%s: read from %d of %d bytes", name, i, len(golden[name]))
			}
		}
		if _, err := decodeLike(v, append([]byte{0, 1}, golden[name][2:]...)); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s of a later version: %v", name, err)
		}
	}
}

func TestAssignmentsOfOlderBrokersHaveTheMembersEpoch(t *testing.T) {
	got, err := DecodeCurrentAssignment(kafkaBytes(t)["current-noepochs"])
	want := map[ids.UUID]map[int32]int32{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}: {0: 9, 3: 9}}
	if err != nil || !reflect.DeepEqual(got.Assigned, want) {
		t.Errorf("read %v, %v", got, err)
	}
}

func TestUnknownTagsAreSkipped(t *testing.T) {
	b := append(bytes.TrimSuffix(ConsumerGroup{Epoch: 7}.Encode(), []byte{0}), 2, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5, 9, 2, 'x', 'y')
	if got, err := DecodeConsumerGroup(b); err != nil || got != (ConsumerGroup{7, 5}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestConsumerKeysAreKafkas(t *testing.T) {
	golden := kafkaBytes(t)
	for name, k := range map[string]ConsumerKey{
		"key3":  {Kind: KindConsumerGroup, Group: "g"},
		"key4":  {Kind: KindPartitionMetadata, Group: "g"},
		"key5":  {KindConsumerMember, "g", "m"},
		"key6":  {Kind: KindTargetAssignment, Group: "g"},
		"key7":  {KindTargetMember, "g", "m"},
		"key8":  {KindCurrentAssignment, "g", "m"},
		"key16": {KindRegularExpression, "g", "x.*"},
	} {
		if got := k.Encode(); !bytes.Equal(got, golden[name]) {
			t.Errorf("%s: %x, Kafka writes %x", name, got, golden[name])
		}
		if got, err := DecodeConsumerKey(golden[name]); err != nil || got != k {
			t.Errorf("%s: read %v, %v", name, got, err)
		}
	}
	for _, bad := range [][]byte{nil, {0}, {0, 3}, {0, 3, 0, 2, 'g'}, {0, 2, 0, 1, 'g'}, {0, 3, 0, 1, 'g', 0}} {
		if k, err := DecodeConsumerKey(bad); err == nil {
			t.Errorf("%x: read %v", bad, k)
		}
	}
}

// FuzzConsumerRecords feeds any bytes to all decoders: what one reads, it reads again from its own encoding.
func FuzzConsumerRecords(f *testing.F) {
	for _, b := range kafkaBytes(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if k, err := DecodeConsumerKey(b); err == nil && !bytes.Equal(k.Encode(), b) {
			t.Errorf("key %x became %x", b, k.Encode())
		}
		for _, like := range []value{ConsumerGroup{}, TargetAssignment{}, TargetMember{}, CurrentAssignment{}, ConsumerMember{}, RegularExpression{}} {
			v, err := decodeLike(like, b)
			if err != nil {
				continue
			}
			again, err := decodeLike(like, v.Encode())
			if err != nil || !bytes.Equal(again.Encode(), v.Encode()) {
				t.Errorf("%T from %x: %+v, then %+v, %v", like, b, v, again, err)
			}
		}
	})
}
