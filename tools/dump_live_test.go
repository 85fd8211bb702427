package tools

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/engine"
	"cairn/internal/ids"
)

// dumpedLive are the base offsets of the batches that a dump of words-0 lets through.
func dumpedLive(t *testing.T, conn Connection, f DumpFilter) []int64 {
	t.Helper()
	c := &capture{}
	if err := Dump(testContext(t), conn, DumpOptions{Topic: "words", Broker: -1, Filter: f}, c.output(true)); err != nil {
		t.Fatal(err)
	}
	bases := []int64{}
	for dec := json.NewDecoder(&c.out); dec.More(); {
		var b dumpedBatch
		if err := dec.Decode(&b); err != nil {
			t.Fatal(err)
		}
		bases = append(bases, b.BaseOffset)
	}
	return bases
}

func TestDumpOfARunningBrokerAndItsFilters(t *testing.T) {
	_, conn := fakeCluster(t, kfake.SeedTopics(1, "words"))
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(conn.Bootstrap, ",")...), kgo.DefaultProduceTopic("words"), kgo.DisableIdempotentWrite())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for i := range 5 { // batches at 0, 2, 4, 6 and 8; times 1000 to 1001, 2000 to 2001, ...
		ms := int64(1000 * (i + 1))
		if err := cl.ProduceSync(testContext(t), &kgo.Record{Value: []byte("a"), Timestamp: time.UnixMilli(ms)},
			&kgo.Record{Value: []byte("b"), Timestamp: time.UnixMilli(ms + 1)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	all := AllBatches()
	for _, tc := range []struct {
		name   string
		change func(*DumpFilter)
		want   []int64
	}{
		{"all", func(*DumpFilter) {}, []int64{0, 2, 4, 6, 8}},
		{"from inside a batch", func(f *DumpFilter) { f.From = 5 }, []int64{4, 6, 8}},
		{"to a base", func(f *DumpFilter) { f.To = 4 }, []int64{0, 2}},
		{"to inside a batch", func(f *DumpFilter) { f.From, f.To = 2, 5 }, []int64{2, 4}},
		{"behind the end", func(f *DumpFilter) { f.From = 1000 }, []int64{}},
		{"from a time", func(f *DumpFilter) { f.FromMs = 3001 }, []int64{4, 6, 8}},
		{"to a time", func(f *DumpFilter) { f.ToMs = 3001 }, []int64{0, 2, 4}},
		{"within a batch's times", func(f *DumpFilter) { f.FromMs, f.ToMs = 2001, 2002 }, []int64{2}},
		{"no record is between", func(f *DumpFilter) { f.FromMs, f.ToMs = 2002, 3000 }, []int64{}},
		{"of a producer", func(f *DumpFilter) { f.ProducerID = 7 }, []int64{}},
	} {
		f := all
		tc.change(&f)
		if got := dumpedLive(t, conn, f); !slices.Equal(got, tc.want) {
			t.Errorf("%s: batches at %v, want %v", tc.name, got, tc.want)
		}
	}
	for want, o := range map[string]DumpOptions{
		"`cairn topics list`": {Topic: "nowhere", Broker: -1, Filter: all},
		"the topic has 1":     {Topic: "words", Partition: 3, Broker: -1, Filter: all},
		"needs --broker":      {Topic: "words", Quarantine: true, Broker: -1, Filter: all},
		"is not alive":        {Topic: "words", Raft: true, Broker: 77, Filter: all},
	} {
		if err := Dump(testContext(t), conn, o, (&capture{}).output(false)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestDumpTimes(t *testing.T) {
	for text, want := range map[string]int64{"1500": 1500, "-1": -1, "1970-01-01T00:00:02.500": 2500, "1970-01-01T01:00:04+01:00": 4000} {
		if got, err := ParseDumpTime("--from-time", text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	if _, err := ParseDumpTime("--from-time", "yesterday"); err == nil || !strings.Contains(err.Error(), "--from-time") {
		t.Errorf("yesterday: %v", err)
	}
}

// TestFilterOfEntries: by offsets all entries are picked, by what a batch has only those with one.
func TestFilterOfEntries(t *testing.T) {
	data := engine.EntryView{NextOffset: 10, Data: &engine.DataView{BaseOffset: 5, MaxTimestamp: 1000, ProducerID: 7}}
	other := engine.EntryView{NextOffset: 5}
	for _, tc := range []struct {
		f           DumpFilter
		data, other bool
	}{
		{AllBatches(), true, true},
		{DumpFilter{From: 9, To: -1, FromMs: math.MinInt64, ToMs: math.MaxInt64, ProducerID: -1}, true, false},
		{DumpFilter{From: 10, To: -1, FromMs: math.MinInt64, ToMs: math.MaxInt64, ProducerID: -1}, false, false},
		{DumpFilter{From: 0, To: 6, FromMs: math.MinInt64, ToMs: math.MaxInt64, ProducerID: -1}, true, true},
		{DumpFilter{To: -1, FromMs: 1001, ToMs: math.MaxInt64, ProducerID: -1}, false, false},
		{DumpFilter{To: -1, FromMs: math.MinInt64, ToMs: math.MaxInt64, ProducerID: 7}, true, false},
	} {
		if tc.f.takesEntry(&data) != tc.data || tc.f.takesEntry(&other) != tc.other {
			t.Errorf("%+v: data %v, other %v", tc.f, tc.f.takesEntry(&data), tc.f.takesEntry(&other))
		}
	}
}

// raftExample is a state, and an entry of each kind.
func raftExample() (engine.RaftView, []engine.EntryView) {
	generation, start := int32(3), ids.Offset(12)
	v := engine.RaftView{
		Shard: 9, Replica: 1001, Generation: 3, BaseOffset: 10, StartIndex: 4, LastIndex: 11, Term: 7, Vote: 1001, Commit: 10, Applied: 9,
		LogStart: 2, HighWater: 14, LogEnd: 16, Epochs: []engine.EpochView{{Epoch: 0}, {Epoch: 5, Start: 10, Index: 6}},
		MembersIndex: 3, Voters: map[ids.ReplicaID]string{1001: "node-1", 1002: "node-2"}, NonVoters: map[ids.ReplicaID]string{1003: "node-3"},
	}
	return v, []engine.EntryView{
		{Index: 5, Term: 7, Kind: "genesis", Ordinal: 1, OrdinalTerm: 7, LeaderEpoch: 0, NextOffset: 10, Generation: &generation},
		{Index: 6, Term: 7, Kind: "epoch-start", Ordinal: 2, OrdinalTerm: 7, LeaderEpoch: 5, NextOffset: 10},
		{
			Index: 7, Term: 7, Kind: "data", Ordinal: 3, OrdinalTerm: 7, LeaderEpoch: 5, NextOffset: 16,
			Data: &engine.DataView{BaseOffset: 10, Records: 6, Bytes: 400, MaxTimestamp: 1_700_000_000_000, ProducerID: -1},
		},
		{Index: 8, Term: 7, Kind: "void", Ordinal: 3, OrdinalTerm: 7, LeaderEpoch: 5, NextOffset: 16, Void: &engine.VoidView{Kind: "data", Ordinal: 5, Term: 7, LeaderEpoch: 5}},
		{Index: 9, Term: 7, Kind: "void", Ordinal: 3, OrdinalTerm: 7, LeaderEpoch: 5, NextOffset: 16, Void: &engine.VoidView{}},
		{Index: 10, Term: 7, Kind: "membership", Ordinal: 3, OrdinalTerm: 7, LeaderEpoch: 5, NextOffset: 16, Member: &engine.MemberView{Change: "add-voter", Replica: 1003, Address: "node-3"}},
		{Index: 11, Term: 7, Kind: "log-start", Ordinal: 4, OrdinalTerm: 7, LeaderEpoch: 5, NextOffset: 16, LogStart: &start},
	}
}

func TestDumpOfTheRaftLogGolden(t *testing.T) {
	var all strings.Builder
	for _, asJSON := range []bool{false, true} {
		c := &capture{}
		out := c.output(asJSON)
		v, entries := raftExample()
		if err := printRaftState(&v, out); err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := printEntry(&e, out); err != nil {
				t.Fatal(err)
			}
		}
		all.WriteString(c.out.String())
	}
	golden(t, "dump_raft.golden", all.String())
}

func TestVerificationGolden(t *testing.T) {
	sound := engine.Verification{Start: 5, End: 100, Batches: 12, Bytes: 3456, Entries: 20, TimeRows: 2, AbortedRows: 1}
	broken := sound
	broken.Problems = []engine.Problem{
		{Part: engine.ProblemRecords, Offset: 7, Index: 12, What: "has no batch"},
		{Part: engine.ProblemIndex, Offset: 9, What: "a time row, but no batch begins here"},
		{Part: engine.ProblemLog, Offset: ids.NoOffset, What: "log start 1000 is above the log end 100"},
	}
	var all strings.Builder
	for _, asJSON := range []bool{false, true} {
		c := &capture{}
		v := &storedVerifier{out: c.output(asJSON)}
		err := v.print(topicPartition{"words", 0}, "data", sound, nil)
		if err == nil {
			err = v.print(topicPartition{"words", 1}, "broker 2", broken, nil)
		}
		if err == nil {
			err = v.print(topicPartition{"words", 2}, "data", engine.Verification{}, fmt.Errorf("reading: %w", engine.ErrCorruptRow))
		}
		if err != nil || v.replicas != 3 || v.damaged != 2 || v.problems != 4 {
			t.Errorf("%v, counted %+v", err, v)
		}
		all.WriteString(c.out.String())
	}
	golden(t, "dump_verify.golden", all.String())
}

func TestVerifyOfWhatIsNoDataDirectory(t *testing.T) {
	err := VerifyStored(t.Context(), Connection{}, VerifyStoredOptions{DataDir: t.TempDir(), Partition: -1, Broker: -1}, (&capture{}).output(false))
	if err == nil || !strings.Contains(err.Error(), "must be the log.dirs") {
		t.Errorf("error %v", err)
	}
}

// TestDumpGolden: a batch, its records and a damaged one in all their forms.
func TestDumpGolden(t *testing.T) {
	var all strings.Builder
	for _, asJSON := range []bool{false, true} {
		c := &capture{}
		d := batchDumper{printData: true, out: c.output(asJSON)}
		damaged := testBatch(t, 0)
		damaged[len(damaged)-1] ^= 1
		at := int64(1_700_000_000_000)
		for _, raw := range [][]byte{testBatch(t, 0), damaged} {
			if err := d.batch(100, raw); err != nil {
				t.Fatal(err)
			}
			d.quarantinedAt = &at
		}
		all.WriteString(c.out.String() + c.err.String())
	}
	golden(t, "dump.golden", all.String())
}
