package topicconfig

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestTableIsOrderedCompleteAndConsistent(t *testing.T) {
	names := make([]string, 0, len(Defs()))
	servers := map[string]string{}
	for _, d := range Defs() {
		names = append(names, d.Name)
		if got, ok := Lookup(d.Name); !ok || got.Name != d.Name {
			t.Errorf("%s is not found", d.Name)
		}
		if err := d.Validate(d.Default); err != nil && !d.Hidden {
			t.Errorf("its own default is refused: %v", err)
		}
		for _, s := range d.Synonyms {
			if other, twice := servers[s.Name]; twice || s.Factor < 1 {
				t.Errorf("%s of %s: factor %d, also of %q", s.Name, d.Name, s.Factor, other)
			}
			servers[s.Name] = d.Name
			if got, _, ok := LookupServer(s.Name); !ok || got.Name != d.Name {
				t.Errorf("%s is not found by its property %s", d.Name, s.Name)
			}
		}
	}
	if !slices.IsSorted(names) || len(names) != 34 {
		t.Errorf("%d configs, sorted: %v", len(names), slices.IsSorted(names))
	}
	if _, ok := Lookup("message.format.version"); ok {
		t.Error("a config that Kafka 4 removed is in the table")
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name string
		good []string
		bad  []string
	}{
		{"cleanup.policy", []string{"delete", "compact", "compact,delete", " delete , compact ", ""}, []string{"drop", "delete,delete", "delete,"}},
		{"compression.type", []string{"producer", "zstd", "uncompressed"}, []string{"none", "", "ZSTD"}},
		{"compression.gzip.level", []string{"-1", "1", "9"}, []string{"0", "10", "-2"}},
		{"compression.lz4.level", []string{"1", "17"}, []string{"0", "18"}},
		{"compression.zstd.level", []string{"-131072", "22"}, []string{"-131073", "23"}},
		{"max.message.bytes", []string{"0", "2147483647", " 5 "}, []string{"-1", "2147483648", "x", "", "1.5"}},
		{"min.insync.replicas", []string{"1"}, []string{"0"}},
		{"retention.ms", []string{"-1", "0", "9223372036854775807"}, []string{"-2", "9223372036854775808"}},
		{"retention.bytes", []string{"-1", "-5"}, []string{"many"}},
		{"segment.bytes", []string{"1048576"}, []string{"1048575"}},
		{"min.cleanable.dirty.ratio", []string{"0", "0.5", "1"}, []string{"-0.1", "1.1", "NaN", "half"}},
		{"message.timestamp.type", []string{"CreateTime", "LogAppendTime"}, []string{"createtime"}},
		{"preallocate", []string{"true", "FALSE"}, []string{"yes", ""}},
		{"remote.storage.enable", []string{"false"}, []string{"true", "maybe"}},
		{"leader.replication.throttled.replicas", []string{"", "*", "0:1", "0:1, 1:2"}, []string{"0", "a:b", "0:1,", "-1:2"}},
	}
	for _, tt := range tests {
		for _, v := range tt.good {
			if err := Validate(Layer{tt.name: v}); err != nil {
				t.Errorf("%s=%q: %v", tt.name, v, err)
			}
		}
		for _, v := range tt.bad {
			if err := Validate(Layer{tt.name: v}); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s=%q: got %v, want ErrInvalid", tt.name, v, err)
			}
		}
	}
	if err := Validate(Layer{"retension.ms": "1"}); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), `did you mean "retention.ms"?`) {
		t.Errorf("a misspelt name: %v", err)
	}
	if err := Validate(Layer{"no.such": "1"}); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown name: %v", err)
	}
	if err := Validate(Layer{"compression.type": strings.Repeat("x", MaxValueBytes+1)}); !errors.Is(err, ErrInvalid) || len(err.Error()) > 200 {
		t.Errorf("overlong value: %d bytes of error", len(err.Error()))
	}
	both := Validate(Layer{"no.such": "1", "segment.bytes": "1"})
	if !errors.Is(both, ErrUnknown) || !errors.Is(both, ErrInvalid) {
		t.Errorf("two errors: only %v", both)
	}
	if err := Validate(Layer{"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("contradicting lags: %v", err)
	}
}

func TestResolveTakesTheStrongestSourceAndConvertsUnits(t *testing.T) {
	l := Layers{
		Topic:   Layer{"max.message.bytes": "1"},
		Broker:  Layer{"message.max.bytes": "2"},
		Cluster: Layer{"message.max.bytes": "3", "min.insync.replicas": "2"},
		Static:  Layer{"message.max.bytes": "4", "log.retention.hours": "2", "log.retention.minutes": "7", "log.roll.hours": "-1"},
	}
	e, ok := ResolveOne("max.message.bytes", l)
	want := []Value{
		{"max.message.bytes", "1", TopicSource},
		{"message.max.bytes", "2", BrokerSource},
		{"message.max.bytes", "3", ClusterSource},
		{"message.max.bytes", "4", StaticSource},
		{"message.max.bytes", "1048588", DefaultSource},
	}
	if !ok || e.Value != "1" || e.Source != TopicSource || !reflect.DeepEqual(e.Synonyms, want) {
		t.Errorf("max.message.bytes: %+v", e)
	}
	e, _ = ResolveOne("retention.ms", l)
	if e.Value != "420000" || e.Source != StaticSource || e.Synonyms[0].Value != "7" || e.Synonyms[1].Name != "log.retention.hours" {
		t.Errorf("retention.ms: %+v, want minutes before hours, in milliseconds", e)
	}
	s, err := Parse(l)
	if err == nil {
		t.Error("segment.ms of -1 passed")
	}
	if s.MaxMessageBytes != 1 || s.MinInsyncReplicas != 2 || s.RetentionMs != 420000 || s.SegmentMs != 604800000 {
		t.Errorf("settings %+v", s)
	}
	entries := Resolve(Layers{})
	if len(entries) != len(Defs())-1 {
		t.Errorf("%d entries, want all but the hidden one", len(entries))
	}
	for _, e := range entries {
		if e.Source != DefaultSource || e.Value != e.Def.Default || len(e.Synonyms) != 1 {
			t.Errorf("unset config: %+v", e)
		}
	}
}

func TestParseDefaults(t *testing.T) {
	s, err := Parse(Layers{})
	want := Settings{
		DeletePolicy: true, CompressionType: "producer", GzipLevel: -1, LZ4Level: 9, ZstdLevel: 3, MaxMessageBytes: 1048588,
		TimestampBeforeMaxMs: 1<<63 - 1, TimestampAfterMaxMs: 3600000, MinInsyncReplicas: 1, RetentionBytes: -1,
		RetentionMs: 604800000, SegmentBytes: 1 << 30, SegmentMs: 604800000, DeleteRetentionMs: 86400000,
		MaxCompactionLagMs: 1<<63 - 1, MinCleanableDirtyRatio: 0.5,
	}
	if err != nil || s != want {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestParseCountsBadValuesAsNotSet(t *testing.T) {
	s, err := Parse(Layers{Topic: Layer{"segment.bytes": "x", "cleanup.policy": "compact", "preallocate": "TRUE"}})
	if !errors.Is(err, ErrInvalid) || s.SegmentBytes != 1<<30 || !s.CompactPolicy || s.DeletePolicy {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestValidateServer(t *testing.T) {
	for property, values := range map[string][2]string{
		"log.retention.hours": {"-1", "9223372036854775807"}, "log.retention.ms": {"5", "-2"}, "message.max.bytes": {"5", "-1"},
		"log.cleaner.min.cleanable.ratio": {"0.1", "7"}, "min.insync.replicas": {"2", "0"},
	} {
		if err := ValidateServer(property, values[0]); err != nil {
			t.Errorf("%s=%s: %v", property, values[0], err)
		}
		if err := ValidateServer(property, values[1]); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s=%s: got %v, want ErrInvalid", property, values[1], err)
		}
	}
	if err := ValidateServer("listeners", "x"); !errors.Is(err, ErrUnknown) {
		t.Errorf("foreign property: %v", err)
	}
}

// FuzzValidate: no value panics, and what validates parses.
func FuzzValidate(f *testing.F) {
	f.Add(uint8(0), "delete,compact")
	f.Add(uint8(16), "0x7")
	f.Fuzz(func(t *testing.T, i uint8, value string) {
		d := Defs()[int(i)%len(Defs())]
		if Validate(Layer{d.Name: value}) != nil {
			return
		}
		if _, err := Parse(Layers{Topic: Layer{d.Name: value}}); err != nil {
			t.Fatalf("%s=%q validates and does not parse: %v", d.Name, value, err)
		}
	})
}
