package tools

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestConfigsPrintKafkasLines(t *testing.T) {
	_, conn := fakeCluster(t, kfake.SeedTopics(1, "t"))
	ctx, c := testContext(t), &capture{}
	var all strings.Builder
	run := func(do func(Output) error, asJSON bool, want string) {
		t.Helper()
		err := do(c.output(asJSON))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		all.WriteString(c.out.String())
	}
	describe := func(e ConfigEntity) func(Output) error {
		return func(out Output) error { return DescribeConfigs(ctx, conn, e, false, out) }
	}
	alter := func(o AlterConfigsOptions) func(Output) error {
		return func(out Output) error { return AlterConfigs(ctx, conn, o, out) }
	}
	topic, defaults := ConfigEntity{Type: "topics", Name: "t"}, ConfigEntity{Type: "brokers", Default: true}
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("segment.bytes = 5000000\nretention.ms=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(describe(topic), false, "")
	run(alter(AlterConfigsOptions{ConfigEntity: topic, Add: "retention.ms=7,cleanup.policy=[compact,delete]", AddFile: file}), false, "")
	run(describe(topic), false, "")
	run(describe(topic), true, "")
	run(alter(AlterConfigsOptions{ConfigEntity: topic, Delete: "retention.ms, segment.bytes"}), true, "")
	run(alter(AlterConfigsOptions{ConfigEntity: topic, Delete: "retention.mss"}), false, "invalid config(s): retention.mss")
	run(alter(AlterConfigsOptions{ConfigEntity: defaults, Add: "message.max.bytes=7"}), false, "")
	run(describe(defaults), false, "")
	run(describe(ConfigEntity{Type: "topics"}), false, "")
	golden(t, "configs.golden", all.String())
}

func TestConfigEntitiesAndChangesAreChecked(t *testing.T) {
	topic := ConfigEntity{Type: "topics", Name: "t"}
	for want, o := range map[string]AlterConfigsOptions{
		"cairn has no quotas":                 {ConfigEntity: ConfigEntity{Type: "users", Name: "u"}, Add: "a=b"},
		"broker-loggers have no configs":      {ConfigEntity: ConfigEntity{Type: "broker-loggers", Name: "1"}, Add: "a=b"},
		"want topics, groups or brokers":      {ConfigEntity: ConfigEntity{Type: "topic", Name: "u"}, Add: "a=b"},
		"--entity-default goes with":          {ConfigEntity: ConfigEntity{Type: "topics", Default: true}, Add: "a=b"},
		"want the id of a broker":             {ConfigEntity: ConfigEntity{Type: "brokers", Name: "x"}, Add: "a=b"},
		"say whose configs":                   {ConfigEntity: ConfigEntity{Type: "topics"}, Add: "a=b"},
		"nothing to alter":                    {ConfigEntity: topic},
		"want NAME=VALUE":                     {ConfigEntity: topic, Add: "a"},
		"ends with ] and a comma":             {ConfigEntity: topic, Add: "a=[b"},
		"a is to be set and to be deleted":    {ConfigEntity: topic, Add: "a=b", Delete: "a"},
		"no such file":                        {ConfigEntity: topic, AddFile: "/nowhere"},
		"the list of a ends with ] and a com": {ConfigEntity: topic, Add: "a=[b]c"},
	} {
		if _, _, err := o.changes(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	got := map[string]string{}
	if err := addPairs(got, "a=1, b=[x,y] ,c=,d=[],e=p=q"); err == nil {
		t.Errorf("a blank behind a list: %v", got)
	}
	clear(got)
	if err := addPairs(got, "a=1, b=[x,y],c=,d=[],e=p=q"); err != nil || fmt.Sprint(got) != "map[a:1 b:x,y c: d: e:p=q]" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestLogDirsFeaturesAndOffsets(t *testing.T) {
	cluster, conn := fakeCluster(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "t", "u"))
	cluster.ControlKey(int16(kmsg.DescribeLogDirs), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := r.ResponseKind().(*kmsg.DescribeLogDirsResponse)
		dir := kmsg.NewDescribeLogDirsResponseDir()
		dir.Dir = "/data"
		for _, name := range []string{"u", "t"} {
			topic := kmsg.NewDescribeLogDirsResponseDirTopic()
			topic.Topic = name
			for _, i := range []int32{10, 9} {
				topic.Partitions = append(topic.Partitions, kmsg.DescribeLogDirsResponseDirTopicPartition{Partition: i, Size: int64(i) * 100, OffsetLag: 1})
			}
			dir.Topics = append(dir.Topics, topic)
		}
		broken := kmsg.NewDescribeLogDirsResponseDir()
		broken.Dir, broken.ErrorCode = "/broken", 56
		resp.Dirs = append(resp.Dirs, dir, broken)
		return resp, nil, true
	})
	ctx, c := testContext(t), &capture{}
	var all strings.Builder
	run := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		all.WriteString(c.out.String())
	}
	run(LogDirs(ctx, conn, LogDirsOptions{}, c.output(false)))
	run(LogDirs(ctx, conn, LogDirsOptions{Topics: []string{"t"}}, c.output(true)))
	if err := LogDirs(ctx, conn, LogDirsOptions{Brokers: []int32{7}}, c.output(false)); err == nil || !strings.Contains(err.Error(), "broker 7 is not there") {
		t.Errorf("an unknown broker: %v", err)
	}
	run(GetOffsets(ctx, conn, GetOffsetsOptions{}, c.output(false)))
	run(GetOffsets(ctx, conn, GetOffsetsOptions{Topic: "t|x", Partitions: []int32{1}, Time: "earliest"}, c.output(true)))
	golden(t, "log_dirs_offsets.golden", all.String())
	if err := GetOffsets(ctx, conn, GetOffsetsOptions{Topic: "x"}, c.output(false)); err == nil || !strings.Contains(err.Error(), "could not match any") {
		t.Errorf("no topic: %v", err)
	}
	if err := DescribeFeatures(ctx, conn, c.output(true)); err != nil || !strings.HasPrefix(c.out.String(), "[") {
		t.Errorf("features: %v, %s", err, c.out.String())
	}
	checkPartitionPatterns(t)
	for text, want := range map[string]int64{"": -1, "latest": -1, "earliest-pending-upload": -6, "-3": -3, "1700000000000": 1700000000000} {
		if got, err := offsetTime(text); err != nil || got != want {
			t.Errorf("--time %q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"now", "-7"} {
		if got, err := offsetTime(text); err == nil {
			t.Errorf("--time %q: %d", text, got)
		}
	}
	for text, want := range map[string]string{"1,x": `"x": want numbers`, "": "want numbers", "1, 1": "1 is there twice", "-1": `"-1": want numbers`} {
		if list, err := ParseIDs(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", text, list, err)
		}
	}
}

func checkPartitionPatterns(t *testing.T) {
	t.Helper()
	all := []topicPartition{{"t", 0}, {"t", 1}, {"t", 2}, {"tt", 0}, {"u", 1}}
	for text, want := range map[string]string{
		"t": "t-0 t-1 t-2", "t:1": "t-1", "t:0-2": "t-0 t-1", "t:1-": "t-1 t-2", ":-1": "t-0 tt-0", "t+:0,u": "t-0 tt-0 u-1", "x": "", "t:": "t-0 t-1 t-2", ":": "t-0 t-1 t-2 tt-0 u-1",
	} {
		p, err := GetOffsetsOptions{TopicPartitions: text}.wanted()
		if err != nil {
			t.Errorf("--topic-partitions %s: %v", text, err)
			continue
		}
		var got []topicPartition
		for _, tp := range all {
			if p.has(tp.Topic, tp.Partition) {
				got = append(got, tp)
			}
		}
		if s := joinPartitions(got, " "); s != want {
			t.Errorf("--topic-partitions %s picks %s, want %s", text, s, want)
		}
	}
	for _, o := range []GetOffsetsOptions{{TopicPartitions: "t:x"}, {TopicPartitions: "("}, {TopicPartitions: "t:0-x"}, {TopicPartitions: "t", Topic: "t"}, {Topic: "("}} {
		if _, err := o.wanted(); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

func TestQuorumPrintsKafkasLines(t *testing.T) {
	q := quorumStatus{ClusterID: "c", LeaderID: 100, LeaderEpoch: 4, HighWatermark: 24, Replicas: []quorumReplica{
		{NodeID: 100, DirectoryID: "AAAAAAAAAAAAAAAAAAAAAA", Endpoints: []string{"CONTROLLER://h:1"}, LogEndOffset: 24, LastFetch: 5000, LastCaughtUp: 5000, Status: "Leader"},
		{NodeID: 101, DirectoryID: "AAAAAAAAAAAAAAAAAAAAAA", LogEndOffset: 20, Lag: 4, LastFetch: -1, LastCaughtUp: 4000, Status: "Follower"},
		{NodeID: 1, DirectoryID: "d79odWerMBVTe126ufAojw", LogEndOffset: 24, LastFetch: 5000, LastCaughtUp: 5000, Status: "Observer"},
	}}
	now := time.UnixMilli(5002)
	golden(t, "quorum.golden", q.status()+q.table(false, now)+q.table(true, now))
}

func TestGeneratedAssignmentsSpread(t *testing.T) {
	current := reassignmentFile{Version: 1}
	for p := range int32(12) {
		current.Partitions = append(current.Partitions, reassignment{topicPartition: topicPartition{"t", p}, Replicas: []int32{1, 2, 3}})
	}
	brokers := []rackedBroker{{1, "a"}, {2, "a"}, {3, "b"}, {4, "b"}}
	o := GenerateOptions{start: func(int) int { return 1 }}
	for _, rackless := range []bool{false, true} {
		o.DisableRackAware = rackless
		ordered, err := o.inTurn(slices.Clone(brokers))
		if err != nil {
			t.Fatal(err)
		}
		got, err := o.propose(current, ordered)
		if err != nil {
			t.Fatal(err)
		}
		leaders, replicas := map[int32]int{}, map[int32]int{}
		for _, p := range got.Partitions {
			leaders[p.Replicas[0]]++
			for i, n := range p.Replicas {
				if replicas[n]++; slices.Contains(p.Replicas[:i], n) {
					t.Errorf("%s: %v", p.topicPartition, p.Replicas)
				}
			}
		}
		for _, b := range brokers {
			if leaders[b.id] != 3 || replicas[b.id] != 9 {
				t.Errorf("broker %d leads %d and has %d", b.id, leaders[b.id], replicas[b.id])
			}
		}
		if first := got.Partitions[0].Replicas; !rackless && (first[0] > 2) == (first[1] > 2) {
			t.Errorf("neighbours of one rack: %v", first)
		}
	}
	if _, err := o.propose(current, brokers[:2]); err == nil || !strings.Contains(err.Error(), "names 2 brokers only") {
		t.Errorf("too few brokers: %v", err)
	}
	o.DisableRackAware = false
	if _, err := o.inTurn([]rackedBroker{{1, "a"}, {2, ""}}); err == nil {
		t.Error("a broker without a rack is taken")
	}
}

func TestGenerateAndThrottleByTheCommands(t *testing.T) {
	cluster, conn := fakeCluster(t, kfake.NumBrokers(3), kfake.SeedTopics(2, "t"))
	r := &reassigner{}
	r.control(cluster)
	ctx, c, dir := testContext(t), &capture{}, t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	topics := write("topics", `{"topics":[{"topic":"t"}],"version":1}`)
	if err := GenerateReassignment(ctx, conn, GenerateOptions{File: topics, Brokers: []int32{0, 1, 2}}, c.output(false)); err != nil {
		t.Fatal(err)
	}
	if got := c.out.String(); !strings.HasPrefix(got, "Current partition replica assignment\n{\"version\":1,") ||
		!strings.Contains(got, "\n\nProposed partition reassignment configuration\n{\"version\":1,") {
		t.Errorf("printed %s", got)
	}
	for text, want := range map[string]string{
		`{`: "want {", `{"version":2,"topics":[{"topic":"t"}]}`: "version 2", `{"topics":[{}]}`: "has no name",
		`{"topics":[{"topic":"t"},{"topic":"t"}]}`: "t is there twice", `{"topics":[]}`: "0 topics",
	} {
		if _, err := readTopicsFile(write("bad", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	move := write("move", `{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[0,1,2]}]}`)
	o := ReassignOptions{File: move, Throttle: 1000}
	if err := ExecuteReassignment(ctx, conn, o, c.output(false)); err != nil {
		t.Fatal(err)
	}
	if got := c.out.String(); !strings.Contains(got, "The inter-broker throttle limit was set to 1000 B/s\nSuccessfully started") {
		t.Errorf("printed %s", got)
	}
	configs := func() string {
		t.Helper()
		if err := DescribeConfigs(ctx, conn, ConfigEntity{Type: "topics", Name: "t"}, false, c.output(false)); err != nil {
			t.Fatal(err)
		}
		return c.out.String()
	}
	if got := configs(); !strings.Contains(got, "leader.replication.throttled.replicas=0:") {
		t.Errorf("throttled: %s", got)
	}
	_ = VerifyReassignment(ctx, conn, o, c.output(false)) // not done: the fake cluster moves nothing
	if got := configs(); got != "Dynamic configs for topic t are:\n" {
		t.Errorf("after verify: %s", got)
	}
}

func TestThrottlePlanCountsWhatIsAdded(t *testing.T) {
	tp := topicPartition{"t", 3}
	wanted := []reassignment{{topicPartition: tp, Replicas: []int32{3, 4, 5}}}
	current := reassignmentFile{Partitions: []reassignment{{topicPartition: tp, Replicas: []int32{3, 4, 1, 2}}}}
	active := []activeReassignment{{topicPartition: tp, Replicas: []int32{3, 4, 1, 2}, Adding: []int32{4}, Removing: []int32{1, 2}}}
	plan := planThrottle(wanted, current, active)
	if list(plan.leaders["t"]) != "3:1,3:2,3:3" || list(plan.followers["t"]) != "3:4,3:5" || fmt.Sprint(plan.brokers) != "[1 2 3 4 5]" {
		t.Errorf("plan %+v", plan)
	}
}

func TestDeletionsPrintKafkasLines(t *testing.T) {
	_, conn := fakeCluster(t, kfake.SeedTopics(2, "t"))
	ctx, c, dir := testContext(t), &capture{}, t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write(`{"version":1,"partitions":[{"topic":"t","partition":1,"offset":0},{"topic":"t","partition":0,"offset":9}]}`)
	err := DeleteRecords(ctx, conn, file, c.output(false))
	if err == nil || err.Error() != "not all records could be deleted" {
		t.Errorf("error %v", err)
	}
	text := c.out.String()
	_ = DeleteRecords(ctx, conn, file, c.output(true)) // the same error
	golden(t, "delete_records.golden", text+c.out.String())
	for text, want := range map[string]string{
		`{`: "want {", `{"version":2,"partitions":[{"topic":"t","partition":1,"offset":0}]}`: "no version 1",
		`{"partitions":[{"topic":"t","partition":1}]}`:                                                   "entry 0 needs",
		`{"partitions":[{"topic":"t","partition":1,"offset":0},{"topic":"t","partition":1,"offset":1}]}`: "duplicate topic partitions: t-1",
	} {
		if _, err := readDeletions(write(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestDeletionsOfOneTopicDoNotHideThoseOfAnother: what is not there is named, and what was deleted is told all the same.
func TestDeletionsOfOneTopicDoNotHideThoseOfAnother(t *testing.T) {
	_, conn := fakeCluster(t, kfake.SeedTopics(1, "there"))
	file := filepath.Join(t.TempDir(), "offsets.json")
	text := `{"version":1,"partitions":[{"topic":"nowhere","partition":0,"offset":1},{"topic":"there","partition":0,"offset":-1}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &capture{}
	err := DeleteRecords(testContext(t), conn, file, c.output(false))
	if err == nil || !strings.Contains(c.out.String(), "partition: there-0\tlow_watermark: 0\n") || !strings.Contains(c.out.String(), "partition: nowhere-0\terror: UNKNOWN_TOPIC_OR_PARTITION") {
		t.Errorf("%v, printed %s", err, c.out.String())
	}
}
