package records

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files instead of comparing with them")

func aGroup() Group {
	g := kmsg.NewGroupMetadataValue()
	protocol, leader, instance := "range", "c-1", "i"
	g.ProtocolType, g.Generation, g.Protocol, g.Leader, g.CurrentStateTimestamp = "consumer", 7, &protocol, &leader, 1_700_000_000_000
	for _, id := range []string{"c-1", "c-2"} {
		m := kmsg.NewGroupMetadataValueMember()
		m.MemberID, m.ClientID, m.ClientHost, m.RebalanceTimeoutMillis, m.SessionTimeoutMillis = id, "c", "/127.0.0.1", 300_000, 45_000
		m.Subscription, m.Assignment = []byte("subscription"), []byte("assignment")
		if id == "c-2" {
			m.InstanceID = &instance
		}
		g.Members = append(g.Members, m)
	}
	return g
}

// TestFormatsStay holds the bytes to a file: they are Kafka's and on disk.
func TestFormatsStay(t *testing.T) {
	key := OffsetKey{"group", "topic", 3}
	plain := Offset{Offset: 42, LeaderEpoch: 5, Metadata: "m", Committed: 1_700_000_000_000, Expires: -1}
	withID, expiring := plain, plain
	withID.TopicID = [16]byte{1, 2, 3, 15: 16}
	expiring.Expires, expiring.LeaderEpoch = 1_700_000_100_000, -1
	var b strings.Builder
	for _, row := range []struct {
		name  string
		bytes []byte
	}{
		{"offset key", key.Encode()},
		{"offset", plain.Encode()},
		{"offset with topic id", withID.Encode()},
		{"offset with expiry", expiring.Encode()},
		{"group key", GroupKey("group")},
		{"group", EncodeGroup(aGroup())},
		{"empty group", EncodeGroup(kmsg.NewGroupMetadataValue())},
	} {
		b.WriteString(row.name + "\n" + hex.Dump(row.bytes))
	}
	path := filepath.Join("testdata", "classic.golden")
	if *rewrite {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	for _, o := range []Offset{plain, withID, expiring} {
		if got, err := DecodeOffset(o.Encode()); err != nil || got != o {
			t.Errorf("%+v came back as %+v, %v", o, got, err)
		}
	}
}

func TestOldVersionsAreRead(t *testing.T) {
	for v := range int16(5) {
		value := (&kmsg.OffsetCommitValue{Version: v, Offset: 9, LeaderEpoch: 4, Metadata: "m", CommitTimestamp: 10, ExpireTimestamp: 20}).AppendTo(nil)
		o, err := DecodeOffset(value)
		want := Offset{Offset: 9, LeaderEpoch: -1, Metadata: "m", Committed: 10, Expires: -1}
		if v >= 3 {
			want.LeaderEpoch = 4
		}
		if v == 1 {
			want.Expires = 20
		}
		if err != nil || o != want {
			t.Errorf("offset version %d: %+v, %v", v, o, err)
		}
		g := aGroup()
		g.Version = v
		got, err := DecodeGroup(g.AppendTo(nil))
		if err != nil || got.Generation != 7 || len(got.Members) != 2 || !bytes.Equal(got.Members[1].Assignment, []byte("assignment")) {
			t.Errorf("group version %d: %+v, %v", v, got, err)
		}
		if timeout := got.Members[0].RebalanceTimeoutMillis; (v < 1) != (timeout == 45_000) {
			t.Errorf("group version %d: rebalance timeout %d", v, timeout)
		}
	}
	if _, err := DecodeOffset([]byte{0, 5, 0}); !errors.Is(err, ErrUnknown) {
		t.Errorf("version 5: %v", err)
	}
	if _, err := DecodeGroup([]byte{0}); !errors.Is(err, ErrMalformed) {
		t.Errorf("one byte: %v", err)
	}
	if _, err := Kind([]byte{1}); !errors.Is(err, ErrMalformed) {
		t.Errorf("a key of one byte: %v", err)
	}
}

// TestDecodersKeepNothing: what was decoded stays as it is when its bytes are used for something else.
func TestDecodersKeepNothing(t *testing.T) {
	value := EncodeGroup(aGroup())
	g, err := DecodeGroup(value)
	if err != nil {
		t.Fatal(err)
	}
	for i := range value {
		value[i] = 0xff
	}
	if again := EncodeGroup(g); !bytes.Equal(again, EncodeGroup(aGroup())) {
		t.Errorf("changed to %q", again)
	}
}

func FuzzDecodeOffset(f *testing.F) {
	f.Add(OffsetKey{"g", "t", 1}.Encode(), Offset{Offset: 1, Expires: -1, TopicID: [16]byte{1}}.Encode())
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if k, err := DecodeOffsetKey(key); err == nil {
			if again, err := DecodeOffsetKey(k.Encode()); err != nil || again != k {
				t.Errorf("%+v came back as %+v, %v", k, again, err)
			}
		}
		if o, err := DecodeOffset(value); err == nil {
			if again, err := DecodeOffset(o.Encode()); err != nil || again.Offset != o.Offset || again.Metadata != o.Metadata {
				t.Errorf("%+v came back as %+v, %v", o, again, err)
			}
		}
	})
}

func FuzzDecodeGroup(f *testing.F) {
	f.Add(GroupKey("g"), EncodeGroup(aGroup()))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if id, err := DecodeGroupKey(key); err == nil {
			if again, err := DecodeGroupKey(GroupKey(id)); err != nil || again != id {
				t.Errorf("%q came back as %q, %v", id, again, err)
			}
		}
		if g, err := DecodeGroup(value); err == nil {
			if again, err := DecodeGroup(EncodeGroup(g)); err != nil || len(again.Members) != len(g.Members) || again.Generation != g.Generation {
				t.Errorf("%+v came back as %+v, %v", g, again, err)
			}
		}
	})
}
