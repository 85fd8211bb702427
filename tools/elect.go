package tools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// electTimeout bounds an election (Kafka: 30 s). An unclean one may have to wait until the old leader's lease is over.
const electTimeout = 30 * time.Second

// electTimedOut is Kafka's line.
const electTimedOut = "Timeout waiting for election results"

// The election types, with Kafka's numbers.
const (
	electPreferred int8 = 0
	electUnclean   int8 = 1
)

// ElectOptions says which leaders to elect.
type ElectOptions struct {
	Type string // preferred or unclean, in any case
	PartitionSelection
	DryRun bool // only show what the election would do and lose
}

func (o ElectOptions) kind() (number int8, name string, err error) {
	switch strings.ToLower(o.Type) {
	case "preferred":
		return electPreferred, "PREFERRED", nil
	case "unclean":
		return electUnclean, "UNCLEAN", nil
	default:
		return 0, "", UsageError{fmt.Errorf("--election-type %q: want preferred or unclean", o.Type)}
	}
}

// electResult is the JSON form of the outcome of elections.
type electResult struct {
	Type      string           `json:"electionType"`
	Succeeded []topicPartition `json:"succeeded"`
	NotNeeded []topicPartition `json:"notNeeded"`
	Failed    []electFailure   `json:"failed"`
}

type electFailure struct {
	topicPartition
	Error string `json:"error"`
}

// Elect holds elections and prints Kafka's lines about them. The error counts the partitions where none could be held.
func Elect(ctx context.Context, conn Connection, o ElectOptions, out Output) error {
	if o.DryRun {
		return electDryRun(ctx, conn, o, out)
	}
	kind, name, err := o.kind()
	if err != nil {
		return err
	}
	list, err := o.partitions()
	if err != nil {
		return err
	}
	return withAdminFor(ctx, conn, out, electTimeout, func(ctx context.Context, cl *kgo.Client) error {
		req := kmsg.NewPtrElectLeadersRequest()
		req.ElectionType, req.Topics, req.TimeoutMillis = kind, electionTopics(list), int32((electTimeout - 2*time.Second).Milliseconds())
		resp, err := req.RequestWith(ctx, cl)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("%s; `cairn topics describe` shows who leads", electTimedOut)
		case err != nil:
			return err
		}
		if err := brokerError(resp.ErrorCode, nil); err != nil {
			return err
		}
		return electionResult(name, resp).print(out)
	})
}

func electionResult(name string, resp *kmsg.ElectLeadersResponse) electResult {
	r := electResult{Type: name}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			tp := topicPartition{t.Topic, p.Partition}
			switch p.ErrorCode {
			case 0:
				r.Succeeded = append(r.Succeeded, tp)
			case kerr.ElectionNotNeeded.Code:
				r.NotNeeded = append(r.NotNeeded, tp)
			default:
				r.Failed = append(r.Failed, electFailure{tp, exception(p.ErrorCode, deref(p.ErrorMessage))})
			}
		}
	}
	slices.SortFunc(r.Succeeded, compareTopicPartitions)
	slices.SortFunc(r.NotNeeded, compareTopicPartitions)
	slices.SortFunc(r.Failed, func(a, b electFailure) int { return compareTopicPartitions(a.topicPartition, b.topicPartition) })
	return r
}

func (r electResult) print(out Output) error {
	var failed error
	if len(r.Failed) > 0 {
		failed = fmt.Errorf("%d replica(s) could not be elected", len(r.Failed))
	}
	if out.JSON {
		return errors.Join(out.writeJSON(r), failed)
	}
	var b strings.Builder
	if len(r.Succeeded) > 0 {
		fmt.Fprintf(&b, "Successfully completed leader election (%s) for partitions %s\n", r.Type, joinPartitions(r.Succeeded, ", "))
	}
	if len(r.NotNeeded) > 0 {
		fmt.Fprintf(&b, "Valid replica already elected for partitions %s\n", joinPartitions(r.NotNeeded, ", "))
	}
	for _, f := range r.Failed {
		fmt.Fprintf(&b, "Error completing leader election (%s) for partition: %s: %s\n", r.Type, f.topicPartition, f.Error)
	}
	if b.Len() == 0 {
		out.note("No partition needs it.")
	}
	_, err := out.Out.Write([]byte(b.String()))
	return errors.Join(err, failed)
}

// exception is how Kafka's tools print an error: the Java class and the message.
func exception(code int16, message string) string {
	classes := map[int16]string{
		kerr.UnknownTopicOrPartition.Code:     "UnknownTopicOrPartitionException",
		kerr.LeaderNotAvailable.Code:          "LeaderNotAvailableException",
		kerr.RequestTimedOut.Code:             "TimeoutException",
		kerr.InvalidRequest.Code:              "InvalidRequestException",
		kerr.PreferredLeaderNotAvailable.Code: "PreferredLeaderNotAvailableException",
		kerr.EligibleLeadersNotAvailable.Code: "EligibleLeadersNotAvailableException",
		kerr.ElectionNotNeeded.Code:           "ElectionNotNeededException",
		kerr.NoReassignmentInProgress.Code:    "NoReassignmentInProgressException",
		kerr.InvalidReplicaAssignment.Code:    "InvalidReplicaAssignmentException",
		kerr.InvalidReplicationFactor.Code:    "InvalidReplicationFactorException",
		kerr.NotController.Code:               "NotControllerException",
	}
	class, ok := classes[code]
	if !ok {
		class = "UnknownServerException"
		if err := kerr.ErrorForCode(code); message == "" && err != nil {
			message = err.Error()
		}
	}
	if message == "" {
		return "org.apache.kafka.common.errors." + class
	}
	return "org.apache.kafka.common.errors." + class + ": " + message
}
