package tools

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// reassigner scripts a fake cluster's answers about reassignments of topic t.
type reassigner struct {
	active []kmsg.ListPartitionReassignmentsResponseTopicPartition
	asked  *kmsg.AlterPartitionAssignmentsRequest
	code   int16
}

func (r *reassigner) control(c *kfake.Cluster) {
	c.ControlKey(int16(kmsg.ListPartitionReassignments), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
		t := kmsg.NewListPartitionReassignmentsResponseTopic()
		t.Topic = "t"
		for _, p := range r.active {
			asked := req.(*kmsg.ListPartitionReassignmentsRequest).Topics
			if asked == nil || slices.Contains(asked[0].Partitions, p.Partition) {
				t.Partitions = append(t.Partitions, p)
			}
		}
		if t.Partitions != nil {
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil, true
	})
	c.ControlKey(int16(kmsg.AlterPartitionAssignments), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		r.asked = req.(*kmsg.AlterPartitionAssignmentsRequest)
		resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
		for _, t := range r.asked.Topics {
			rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, r.code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
}

func moving(partition int32, replicas, adding, removing []int32) kmsg.ListPartitionReassignmentsResponseTopicPartition {
	return kmsg.ListPartitionReassignmentsResponseTopicPartition{
		Partition: partition, Replicas: replicas, AddingReplicas: adding, RemovingReplicas: removing,
	}
}

func TestReassignPrintsKafkasLines(t *testing.T) {
	cluster, conn := fakeCluster(t, kfake.SeedTopics(3, "t"))
	r := &reassigner{}
	r.control(cluster)
	file := filepath.Join(t.TempDir(), "move.json")
	text := `{"version":1,"partitions":[{"topic":"t","partition":1,"replicas":[2,3],"log_dirs":["any","any"]},{"topic":"t","partition":0,"replicas":[1,2]}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, c, o := testContext(t), &capture{}, ReassignOptions{File: file}
	var all strings.Builder
	run := func(name string, action func() error, want string) {
		t.Helper()
		err := action()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
		for line := range strings.Lines(c.out.String()) { // which replicas the fake cluster chose is up to it
			if _, moving, ok := strings.Cut(line, "\tAdding"); ok {
				line = "Adding" + moving
			} else if strings.Contains(line, "Topic: t\t") {
				continue
			}
			if !strings.HasPrefix(line, `{"version":1`) {
				all.WriteString(line)
			}
		}
	}
	execute := func() error { return ExecuteReassignment(ctx, conn, o, c.output(false)) }
	verify := func() error { return VerifyReassignment(ctx, conn, o, c.output(false)) }
	cancel := func() error { return CancelReassignments(ctx, conn, o, c.output(false)) }
	list := func() error { return ListReassignments(ctx, conn, c.output(false)) }

	run("list nothing", list, "")
	run("cancel nothing", cancel, "")
	run("execute", execute, "")
	if !strings.Contains(c.out.String(), `{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[`) {
		t.Errorf("no way back in %s", c.out.String())
	}
	if p := r.asked.Topics[0].Partitions; len(p) != 2 || p[0].Partition != 0 || !slices.Equal(p[0].Replicas, []int32{1, 2}) || !r.asked.AllowReplicationFactorChange {
		t.Errorf("asked for %+v", r.asked)
	}
	r.active = append(r.active, moving(0, []int32{1, 2, 7}, []int32{1, 2}, []int32{7}), moving(1, []int32{2, 4}, []int32{}, []int32{}))
	run("list", list, "")
	run("describe", func() error {
		return DescribeTopics(ctx, conn, DescribeTopicsOptions{TopicSelection: TopicSelection{Topic: "t"}, PartitionsPerAsk: 10}, c.output(false))
	}, "")
	run("verify", verify, "not all partitions have the replicas")
	run("execute again", execute, "Use --additional")
	run("cancel", cancel, "")
	if p := r.asked.Topics[0].Partitions; len(p) != 2 || p[0].Replicas != nil {
		t.Errorf("cancelled %+v", r.asked)
	}
	r.active = nil
	run("verify what was never begun", verify, "not all partitions have the replicas")
	o.Additional, r.code = true, kerr.InvalidReplicaAssignment.Code
	run("execute what is refused", execute, "t-0: org.apache.kafka.common.errors.InvalidReplicaAssignmentException")
	golden(t, "reassign.golden", hideReplicas(all.String()))
}

// hideReplicas takes out where the fake cluster has put the partitions.
func hideReplicas(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if head, tail, ok := strings.Cut(line, "but replica set is "); ok && strings.HasPrefix(line, "There is no") {
			_, tail, _ = strings.Cut(tail, " ")
			line = head + "but replica set is X " + tail
		}
		b.WriteString(line)
	}
	return b.String()
}

func TestReassignmentFilesAreChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	one := `{"topic":"t","partition":1,"replicas":[1]}`
	for text, want := range map[string]string{
		`[]`: "want {",
		`{"version":2,"partitions":[` + one + `]}`:                                               "version 2",
		`{"version":1,"partitions":[]}`:                                                          "0 partitions",
		`{"version":1,"partitions":[{"topic":"t","partition":1}]}`:                               "t-1 with replicas []",
		`{"version":1,"partitions":[{"topic":"t","replicas":[1]},{"topic":"t","replicas":[1]}]}`: "t-0 is there twice",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readReassignment(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
