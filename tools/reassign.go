package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ReassignOptions says which replicas partitions are to have.
type ReassignOptions struct {
	File       string // Kafka's {"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2,3]}]}
	Additional bool   // also while other reassignments are under way
	// SameFactor refuses to change the number of replicas.
	SameFactor bool
	// Throttle bounds what brokers give and take for the move, bytes a second; 0: no throttle is set.
	Throttle int64
	// PreserveThrottles leaves throttles in place when a move has ended or was cancelled.
	PreserveThrottles bool
	// Timeout bounds the whole command; 0: a minute.
	Timeout time.Duration
}

// limit is the time for the command.
func (o ReassignOptions) limit() time.Duration { return cmp.Or(o.Timeout, adminTimeout) }

// reassignmentExists is Kafka's line.
const reassignmentExists = "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create " +
	"a new partition assignment in addition to the existing one. The --additional flag can also be used to change the throttle by resubmitting " +
	"the current reassignment."

// reassignment is one partition with its replicas, the preferred leader first.
type reassignment struct {
	topicPartition
	Replicas []int32  `json:"replicas"`
	LogDirs  []string `json:"log_dirs,omitempty"`
}

// reassignmentFile is the form in which Kafka's tool reads and prints assignments.
type reassignmentFile struct {
	Version    int            `json:"version"`
	Partitions []reassignment `json:"partitions"`
}

func readReassignment(path string) ([]reassignment, error) {
	const want = `want {"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2,3]}]}`
	if path == "" {
		return nil, errors.New("--reassignment-json-file is missing: " + want)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	file := reassignmentFile{Version: 1}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w; %s", path, err, want)
	}
	if file.Version != 1 || len(file.Partitions) == 0 {
		return nil, fmt.Errorf("%s: version %d with %d partitions; %s", path, file.Version, len(file.Partitions), want)
	}
	seen := map[topicPartition]bool{}
	for _, p := range file.Partitions {
		switch {
		case p.Topic == "" || p.Partition < 0 || len(p.Replicas) == 0:
			return nil, fmt.Errorf("%s: %s with replicas %v; %s", path, p.topicPartition, p.Replicas, want)
		case seen[p.topicPartition]:
			return nil, fmt.Errorf("%s: partition %s is there twice", path, p.topicPartition)
		}
		seen[p.topicPartition] = true
	}
	slices.SortFunc(file.Partitions, func(a, b reassignment) int { return compareTopicPartitions(a.topicPartition, b.topicPartition) })
	return file.Partitions, nil
}

// names are the partitions' names.
func names(list []reassignment) []topicPartition {
	out := make([]topicPartition, len(list))
	for i, r := range list {
		out[i] = r.topicPartition
	}
	return out
}

// ExecuteReassignment starts to move partitions to the replicas of the file, and prints the present assignment, which leads
// back.
func ExecuteReassignment(ctx context.Context, conn Connection, o ReassignOptions, out Output) error {
	list, err := readReassignment(o.File)
	if err != nil {
		return err
	}
	return withAdminFor(ctx, conn, out, o.limit(), func(ctx context.Context, cl *kgo.Client) error {
		active, err := activeReassignments(ctx, cl, nil)
		if err != nil {
			return err
		}
		if len(active) > 0 && !o.Additional {
			return fmt.Errorf("%s", reassignmentExists)
		}
		current, err := currentAssignment(ctx, cl, names(list))
		if err != nil {
			return err
		}
		if !out.JSON {
			text, err := json.Marshal(current)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(out.Out, "Current partition replica assignment\n\n%s\n\nSave this to use as the --reassignment-json-file option during rollback\n", text); err != nil {
				return err
			}
		}
		if err := o.throttle(ctx, cl, planThrottle(list, current, active), out); err != nil {
			return err
		}
		failed, err := alterReassignments(ctx, cl, list, !o.SameFactor)
		if err != nil {
			return err
		}
		if err := failedReassignments("Error reassigning partition(s):", failed); err != nil {
			return err
		}
		if out.JSON {
			return out.writeJSON(map[string]any{"current": current, "started": names(list)})
		}
		plural := ""
		if len(list) > 1 {
			plural = "s"
		}
		_, err = fmt.Fprintf(out.Out, "Successfully started partition reassignment%s for %s\n", plural, joinPartitions(names(list), ","))
		return err
	})
}

// throttle sets the throttle that was asked for, if any.
func (o ReassignOptions) throttle(ctx context.Context, cl *kgo.Client, plan throttlePlan, out Output) error {
	if o.Throttle <= 0 {
		return nil
	}
	if err := plan.set(ctx, cl, o.Throttle); err != nil {
		return err
	}
	if out.JSON {
		return nil
	}
	_, err := fmt.Fprintf(out.Out, "Warning: You must run `cairn reassign verify` periodically, until the reassignment completes, to ensure the throttle is removed.\n"+
		"The inter-broker throttle limit was set to %d B/s\n", o.Throttle)
	return err
}

// failure is a partition with what went wrong.
type failure struct {
	topicPartition
	code    int16
	message string
}

func failedReassignments(head string, failed []failure) error {
	if len(failed) == 0 {
		return nil
	}
	lines := []string{head}
	for _, f := range failed {
		lines = append(lines, fmt.Sprintf("%s: %s", f.topicPartition, cmp.Or(f.message, exception(f.code, ""))))
	}
	return errors.New(strings.Join(lines, "\n"))
}

// alterReassignments asks for the replicas; those without cancel.
func alterReassignments(ctx context.Context, cl *kgo.Client, list []reassignment, free bool) ([]failure, error) {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis, req.AllowReplicationFactorChange = int32(adminTimeout.Milliseconds()/2), free
	for _, r := range list {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != r.Topic {
			t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
			t.Topic = r.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		p.Partition, p.Replicas = r.Partition, r.Replicas
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	if err := brokerError(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	var failed []failure
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				failed = append(failed, failure{topicPartition{t.Topic, p.Partition}, p.ErrorCode, deref(p.ErrorMessage)})
			}
		}
	}
	return failed, nil
}

// activeReassignment is a partition that is being moved.
type activeReassignment struct {
	topicPartition
	Replicas []int32 `json:"replicas"`
	Adding   []int32 `json:"adding"`
	Removing []int32 `json:"removing"`
}

// target are the replicas that are to stay.
func (a activeReassignment) target() []int32 {
	return slices.DeleteFunc(slices.Clone(a.Replicas), func(n int32) bool { return slices.Contains(a.Removing, n) })
}

// activeReassignments lists what is under way of the partitions; nil: of all.
func activeReassignments(ctx context.Context, cl *kgo.Client, of []topicPartition) ([]activeReassignment, error) {
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	req.TimeoutMillis = int32(adminTimeout.Milliseconds() / 2)
	topics, partitions := byTopic(of)
	for _, name := range topics {
		t := kmsg.NewListPartitionReassignmentsRequestTopic()
		t.Topic, t.Partitions = name, partitions[name]
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	if err := brokerError(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	active := []activeReassignment{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			active = append(active, activeReassignment{topicPartition{t.Topic, p.Partition}, p.Replicas, p.AddingReplicas, p.RemovingReplicas})
		}
	}
	slices.SortFunc(active, func(a, b activeReassignment) int { return compareTopicPartitions(a.topicPartition, b.topicPartition) })
	return active, nil
}

// currentAssignment is what the partitions have now, in the form of a reassignment file.
func currentAssignment(ctx context.Context, cl *kgo.Client, list []topicPartition) (reassignmentFile, error) {
	file := reassignmentFile{Version: 1}
	topics, _ := byTopic(list)
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return file, err
	}
	have := map[topicPartition][]int32{}
	for _, t := range resp.Topics {
		if err := brokerError(t.ErrorCode, nil); err != nil && !errors.Is(err, kerr.LeaderNotAvailable) {
			return file, fmt.Errorf("topic '%s': %w; `cairn topics list` shows what there is", deref(t.Topic), err)
		}
		for _, p := range t.Partitions {
			have[topicPartition{deref(t.Topic), p.Partition}] = p.Replicas
		}
	}
	for _, tp := range list {
		replicas, ok := have[tp]
		if !ok {
			return file, fmt.Errorf("there is no partition %s; `cairn topics describe --topic %s` shows what there is", tp, tp.Topic)
		}
		r := reassignment{topicPartition: tp, Replicas: replicas}
		for range replicas {
			r.LogDirs = append(r.LogDirs, "any")
		}
		file.Partitions = append(file.Partitions, r)
	}
	return file, nil
}

// ListReassignments prints what is under way.
func ListReassignments(ctx context.Context, conn Connection, out Output) error {
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		active, err := activeReassignments(ctx, cl, nil)
		if err != nil {
			return err
		}
		if out.JSON {
			return out.writeJSON(active)
		}
		if len(active) == 0 {
			_, err := fmt.Fprintln(out.Out, "No partition reassignments found.")
			return err
		}
		var b strings.Builder
		b.WriteString("Current partition reassignments:\n")
		for _, a := range active {
			fmt.Fprintf(&b, "%s: replicas: %s.", a.topicPartition, joinIDs(a.Replicas, ""))
			if len(a.Adding) > 0 {
				fmt.Fprintf(&b, " adding: %s.", joinIDs(a.Adding, ""))
			}
			if len(a.Removing) > 0 {
				fmt.Fprintf(&b, " removing: %s.", joinIDs(a.Removing, ""))
			}
			b.WriteString("\n")
		}
		_, err = out.Out.Write([]byte(b.String()))
		return err
	})
}

// CancelReassignments stops moving the file's partitions and takes them back to the replicas they had.
func CancelReassignments(ctx context.Context, conn Connection, o ReassignOptions, out Output) error {
	list, err := readReassignment(o.File)
	if err != nil {
		return err
	}
	return withAdminFor(ctx, conn, out, o.limit(), func(ctx context.Context, cl *kgo.Client) error {
		active, err := activeReassignments(ctx, cl, names(list))
		if err != nil {
			return err
		}
		cancelled := []topicPartition{}
		var request []reassignment
		for _, a := range active {
			cancelled = append(cancelled, a.topicPartition)
			request = append(request, reassignment{topicPartition: a.topicPartition})
		}
		if len(request) > 0 {
			failed, err := alterReassignments(ctx, cl, request, true)
			if err != nil {
				return err
			}
			if err := failedReassignments("Error cancelling partition reassignment(s) for:", failed); err != nil {
				return err
			}
		}
		if out.JSON {
			return errors.Join(o.unthrottle(ctx, cl, list, out), out.writeJSON(map[string]any{"cancelled": cancelled}))
		}
		if len(cancelled) == 0 {
			_, err := fmt.Fprintln(out.Out, "None of the specified partition reassignments are active.")
			return err
		}
		plural := ""
		if len(cancelled) > 1 {
			plural = "s"
		}
		if _, err := fmt.Fprintf(out.Out, "Successfully cancelled partition reassignment%s for: %s\n", plural, joinPartitions(cancelled, ",")); err != nil {
			return err
		}
		return o.unthrottle(ctx, cl, list, out)
	})
}

// unthrottle takes the throttles of a move away that has ended, unless they are to stay.
func (o ReassignOptions) unthrottle(ctx context.Context, cl *kgo.Client, list []reassignment, out Output) error {
	if o.PreserveThrottles {
		return nil
	}
	topics, _ := byTopic(names(list))
	if out.JSON {
		return clearThrottles(ctx, cl, topics, io.Discard)
	}
	return clearThrottles(ctx, cl, topics, out.Out)
}
