package tools

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/twmb/franz-go/pkg/kfake"
)

// groupCluster has topics t and u of two partitions with five records in each partition of t, a group "read" that has committed
// some of them, and an "idle" one.
func groupCluster(t *testing.T) (Connection, *kgo.Client) {
	t.Helper()
	_, conn := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "t", "u"))
	cl, err := kgo.NewClient(kgo.SeedBrokers(conn.Bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	ctx := testContext(t)
	for i := range 10 {
		r := &kgo.Record{Topic: "t", Partition: int32(i % 2), Value: []byte("v"), Timestamp: time.UnixMilli(int64(1000 * (i/2 + 1)))}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	commit(t, ctx, cl, "read", map[string][]int64{"t": {3, 5}})
	commit(t, ctx, cl, "idle", map[string][]int64{"u": {0}})
	return conn, cl
}

func commit(t *testing.T, ctx context.Context, cl *kgo.Client, group string, offsets map[string][]int64) {
	t.Helper()
	o := kadm.Offsets{}
	for topic, list := range offsets {
		for p, at := range list {
			o.AddOffset(topic, int32(p), at, -1)
		}
	}
	if err := kadm.NewClient(cl).CommitAllOffsets(ctx, group, o); err != nil {
		t.Fatal(err)
	}
}

// withPorts replaces what differs from run to run.
func withPorts(s string, conn Connection) string {
	_, port, _ := strings.Cut(conn.Bootstrap, ":")
	return strings.NewReplacer(":"+port, ":PORT ", `"port":`+port, `"port":PORT`).Replace(s)
}

func TestGroupsAreListedAsKafkasToolListsThem(t *testing.T) {
	conn, _ := groupCluster(t)
	ctx, c := testContext(t), &capture{}
	var b strings.Builder
	for _, o := range []ListGroupsOptions{{}, {ShowState: true}, {ShowState: true, ShowType: true}, {ShowState: true, States: []string{"stable"}}} {
		if err := ListGroups(ctx, conn, o, c.output(false)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%+v\n%s", o, c.out.String())
	}
	if err := ListGroups(ctx, conn, ListGroupsOptions{}, c.output(true)); err != nil {
		t.Fatal(err)
	}
	golden(t, "groups_list.golden", b.String()+c.out.String())
}

func TestGroupsAreDescribedAsKafkasToolDescribesThem(t *testing.T) {
	conn, _ := groupCluster(t)
	ctx, c := testContext(t), &capture{}
	var b strings.Builder
	for _, o := range []DescribeGroupsOptions{
		{},
		{Verbose: true},
		{State: true},
		{State: true, Verbose: true},
		{Members: true},
		{GroupSelection: GroupSelection{All: true}},
	} {
		if !o.All {
			o.Groups = []string{"read"}
		}
		for _, asJSON := range []bool{false, true} {
			if err := DescribeGroups(ctx, conn, o, c.output(asJSON)); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%+v\n%s%s", o, c.out.String(), c.err.String())
		}
	}
	golden(t, "groups_describe.golden", withPorts(b.String(), conn))
	err := DescribeGroups(ctx, conn, DescribeGroupsOptions{GroupSelection: GroupSelection{Groups: []string{"nope"}}}, c.output(false))
	if !errors.Is(err, errNoGroup) {
		t.Errorf("a group that is not there: %v", err)
	}
}

// TestMembersArePrintedAsKafkasToolPrintsThem prints what no fake cluster has: members of all kinds.
func TestMembersArePrintedAsKafkasToolPrintsThem(t *testing.T) {
	epoch, target, yes, no := int32(4), int32(5), true, false
	classic := &groupDescription{
		Group: "classic", Type: "Classic", State: "Stable", Assignor: "range", Coordinator: groupCoordinator{1, "h", 9092},
		Members: []groupMember{
			{ConsumerID: "c-0123456789", Host: "/10.0.0.1", ClientID: "c", Assignment: []topicPartition{{"t", 0}, {"t", 1}, {"u", 0}}},
			{ConsumerID: "i-1", InstanceID: "i", Host: "/10.0.0.2", ClientID: "c", Assignment: []topicPartition{}},
		},
	}
	consumer := &groupDescription{
		Group: "a-consumer-group-of-a-long-name", Type: "Consumer", State: "Reconciling", Assignor: "uniform", Epoch: &target, TargetEpoch: &target,
		Members: []groupMember{
			{ConsumerID: "m1", Host: "/h", ClientID: "c", Epoch: &epoch, Assignment: []topicPartition{{"t", 0}}, Target: []topicPartition{{"t", 0}, {"t", 2}}, Upgraded: &yes},
			{ConsumerID: "m2", Host: "/h", ClientID: "c", Epoch: &epoch, Assignment: []topicPartition{{"t", 1}}, Target: []topicPartition{{"t", 1}}, Upgraded: &no},
		},
	}
	c := &capture{}
	var b strings.Builder
	for _, o := range []DescribeGroupsOptions{{Members: true}, {Members: true, Verbose: true}, {State: true, Verbose: true}} {
		out := c.output(false)
		if err := o.print([]*groupDescription{classic, consumer}, out); err != nil {
			t.Fatal(err)
		}
		b.WriteString(c.out.String() + c.err.String())
	}
	golden(t, "groups_members.golden", b.String())
}

func TestOffsetsAreReset(t *testing.T) {
	conn, cl := groupCluster(t)
	ctx, c := testContext(t), &capture{}
	at := func(n int64) *int64 { return &n }
	file := filepath.Join(t.TempDir(), "offsets.csv")
	if err := os.WriteFile(file, []byte("t,0,2\nother,t,1,1\nread,t,1,4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		o    ResetOffsetsOptions
		want string // of partitions 0 and 1 of t
	}{
		{"earliest", ResetOffsetsOptions{ToEarliest: true, AllTopics: true}, "t,0,0\nt,1,0\n"},
		{"latest", ResetOffsetsOptions{ToLatest: true, Topics: []string{"t"}}, "t,0,5\nt,1,5\n"},
		{"one partition", ResetOffsetsOptions{ToLatest: true, Topics: []string{"t:0"}}, "t,0,5\n"},
		{"current", ResetOffsetsOptions{ToCurrent: true, Topics: []string{"t", "u:1"}}, "t,0,3\nt,1,5\nu,1,0\n"},
		{"shift back", ResetOffsetsOptions{ShiftBy: at(-4), AllTopics: true}, "t,0,0\nt,1,1\n"},
		{"shift on", ResetOffsetsOptions{ShiftBy: at(1), AllTopics: true}, "t,0,4\nt,1,5\n"},
		{"shift beyond all numbers", ResetOffsetsOptions{ShiftBy: at(math.MaxInt64), AllTopics: true}, "t,0,5\nt,1,5\n"},
		{"shift back beyond all numbers", ResetOffsetsOptions{ShiftBy: at(math.MinInt64), AllTopics: true}, "t,0,0\nt,1,0\n"},
		{"offset", ResetOffsetsOptions{ToOffset: at(2), AllTopics: true}, "t,0,2\nt,1,2\n"},
		{"datetime before 1970", ResetOffsetsOptions{ToDatetime: "1969-12-31", AllTopics: true}, "t,0,0\nt,1,0\n"},
		{"the first datetime there is", ResetOffsetsOptions{ToDatetime: "0001-01-01", AllTopics: true}, "t,0,0\nt,1,0\n"},
		{"duration to before 1970", ResetOffsetsOptions{ByDuration: "P40000D", AllTopics: true}, "t,0,0\nt,1,0\n"},
		{"datetime", ResetOffsetsOptions{ToDatetime: "1970-01-01T00:00:02.500", AllTopics: true}, "t,0,2\nt,1,2\n"},
		{"datetime with a zone", ResetOffsetsOptions{ToDatetime: "1970-01-01T01:00:04+01:00", AllTopics: true}, "t,0,3\nt,1,3\n"},
		{"duration", ResetOffsetsOptions{ByDuration: "P1D", AllTopics: true}, "t,0,5\nt,1,5\n"},
		{"file", ResetOffsetsOptions{File: file}, "t,0,2\nt,1,4\n"},
	} {
		row.o.Groups, row.o.Export = []string{"read"}, true
		if err := ResetOffsets(ctx, conn, row.o, c.output(false)); err != nil || c.out.String() != row.want {
			t.Errorf("%s: %v, %q, want %q", row.name, err, c.out.String(), row.want)
		}
	}
	// Nothing of that was executed.
	o := ResetOffsetsOptions{GroupSelection: GroupSelection{Groups: []string{"read"}}, ToOffset: at(99), Topics: []string{"t"}, Execute: true}
	if err := ResetOffsets(ctx, conn, o, c.output(false)); err != nil {
		t.Fatal(err)
	}
	golden(t, "groups_reset.golden", c.out.String()+c.err.String())
	got, err := kadm.NewClient(cl).FetchOffsets(ctx, "read")
	if err != nil || got["t"][0].At != 5 || got["t"][1].At != 5 {
		t.Errorf("committed are %+v, %v", got, err)
	}
	o.ToOffset, o.ShiftBy, o.Topics, o.Execute = nil, at(1), []string{"u"}, false
	if err := ResetOffsets(ctx, conn, o, c.output(false)); err == nil || !strings.Contains(err.Error(), "no current committed offset") {
		t.Errorf("shifting what is not committed: %v", err)
	}
	o.Topics = []string{"t:7"}
	if err := ResetOffsets(ctx, conn, o, c.output(false)); !errors.Is(err, errNoPartition) {
		t.Errorf("a partition that is not there: %v", err)
	}
}

// TestResetOfAGroupThatIsNotThere: it is made, as by Kafka's tool, and with a warning, as its name may be a typing error.
func TestResetOfAGroupThatIsNotThere(t *testing.T) {
	conn, cl := groupCluster(t)
	ctx, c := testContext(t), &capture{}
	o := ResetOffsetsOptions{GroupSelection: GroupSelection{Groups: []string{"raed"}}, ToEarliest: true, Topics: []string{"t:0"}, Export: true}
	for _, row := range []struct {
		execute bool
		warning string
	}{{false, "Group 'raed' does not exist; --execute would create it"}, {true, "Group 'raed' did not exist; it is created"}} {
		o.Execute = row.execute
		if err := ResetOffsets(ctx, conn, o, c.output(false)); err != nil || c.out.String() != "t,0,0\n" || !strings.Contains(c.err.String(), row.warning) {
			t.Errorf("execute %v: %v, %q, %q", row.execute, err, c.out.String(), c.err.String())
		}
		got, err := kadm.NewClient(cl).FetchOffsets(ctx, "raed")
		if errors.Is(err, kerr.GroupIDNotFound) {
			err = nil
		}
		at, there := got.Lookup("t", 0)
		if there = there && at.At >= 0; err != nil || there != row.execute {
			t.Errorf("execute %v: committed are %+v, %v", row.execute, got, err)
		}
	}
}

func TestResetOptionsAreChecked(t *testing.T) {
	zero := int64(0)
	for name, o := range map[string]ResetOffsetsOptions{
		"no way":             {AllTopics: true},
		"two ways":           {AllTopics: true, ToEarliest: true, ToOffset: &zero},
		"no partitions":      {ToEarliest: true},
		"two kinds":          {ToEarliest: true, AllTopics: true, Topics: []string{"t"}},
		"a file and a topic": {File: "f", Topics: []string{"t"}},
		"no group":           {ToEarliest: true, AllTopics: true, GroupSelection: GroupSelection{Groups: []string{}}},
		"bad time":           {ToDatetime: "yesterday", AllTopics: true},
		"bad duration":       {ByDuration: "1h", AllTopics: true},
		"empty duration":     {ByDuration: "PT", AllTopics: true},
	} {
		if name != "no group" {
			o.Groups = []string{"g"}
		}
		err := ResetOffsets(t.Context(), Connection{}, o, (&capture{}).output(false))
		var usage UsageError
		if !errors.As(err, &usage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for text, want := range map[string]time.Duration{
		"P1DT2H3M4.5S": 26*time.Hour + 3*time.Minute + 4500*time.Millisecond, "PT-1H": -time.Hour, "-PT1H": -time.Hour, "p2d": 48 * time.Hour,
	} {
		if got, err := parsePeriod(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

func TestOffsetFilesAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"t,0\n": "want topic,partition,offset", "t,x,1\n": "no partition", "t,0,-1\n": "no offset", "": "has no offset",
		"t,0,1\nt,0,2\n": "there twice", "other,t,0,1\n": "has no offset of group 'g'",
	} {
		file := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readOffsetsFile(file, "g", true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if _, err := readOffsetsFile(file, "g", false); err == nil {
			t.Errorf("%q, several groups: no error", text)
		}
	}
}

func TestGroupsAndOffsetsAreDeleted(t *testing.T) {
	conn, _ := groupCluster(t)
	ctx, c := testContext(t), &capture{}
	var b strings.Builder
	if err := DeleteOffsets(ctx, conn, DeleteOffsetsOptions{Group: "read", Topics: []string{"t:1"}}, c.output(false)); err != nil {
		t.Fatal(err)
	}
	b.WriteString(c.out.String())
	if err := DeleteOffsets(ctx, conn, DeleteOffsetsOptions{Group: "read", Topics: []string{"nope", "t:0"}}, c.output(false)); err == nil {
		t.Error("no error for a topic that is not there")
	}
	b.WriteString(c.out.String())
	if err := DeleteOffsets(ctx, conn, DeleteOffsetsOptions{Group: "nope", Topics: []string{"t:0"}}, c.output(false)); err == nil {
		t.Error("no error for a group that is not there")
	}
	b.WriteString(c.out.String())
	if err := DeleteGroups(ctx, conn, GroupSelection{Groups: []string{"idle"}}, c.output(false)); err != nil {
		t.Fatal(err)
	}
	b.WriteString(c.out.String())
	if err := DeleteGroups(ctx, conn, GroupSelection{Groups: []string{"nope", "read"}}, c.output(false)); err == nil {
		t.Error("no error for a group that is not there")
	}
	b.WriteString(c.out.String())
	golden(t, "groups_delete.golden", b.String())
}

// TestAListWithHolesIsAnError: a broker that is still reading its groups does not make others look as if they were all.
func TestAListWithHolesIsAnError(t *testing.T) {
	cluster, conn := fakeCluster(t, kfake.NumBrokers(1))
	cluster.ControlKey(int16(kmsg.ListGroups), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := r.ResponseKind().(*kmsg.ListGroupsResponse)
		resp.ErrorCode = 14
		return resp, nil, true
	})
	err := ListGroups(testContext(t), conn, ListGroupsOptions{}, (&capture{}).output(false))
	if err == nil || !strings.Contains(err.Error(), "for its groups") {
		t.Errorf("error %v", err)
	}
}
