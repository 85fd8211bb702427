package tools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrReassigning is returned when not all partitions have the replicas of the file yet.
var ErrReassigning = errors.New("not all partitions have the replicas of the file; `cairn reassign list` shows what is under way")

// reassignmentStatus is the JSON form of one partition of a verification.
type reassignmentStatus struct {
	topicPartition
	Status  string  `json:"status"` // completed, in progress, or different
	Current []int32 `json:"current"`
	Wanted  []int32 `json:"wanted"`
}

// VerifyReassignment prints whether the partitions of the file have reached its replicas. Once they have, the throttles are taken away.
func VerifyReassignment(ctx context.Context, conn Connection, o ReassignOptions, out Output) error {
	list, err := readReassignment(o.File)
	if err != nil {
		return err
	}
	return withAdminFor(ctx, conn, out, o.limit(), func(ctx context.Context, cl *kgo.Client) error {
		active, err := activeReassignments(ctx, cl, names(list))
		if err != nil {
			return err
		}
		current, err := currentAssignment(ctx, cl, names(list))
		if err != nil {
			return err
		}
		var all []reassignmentStatus
		pending := error(nil)
		for i, r := range list {
			s := statusOf(r, current.Partitions[i].Replicas, active)
			if s.Status != statusCompleted {
				pending = ErrReassigning
			}
			all = append(all, s)
		}
		if out.JSON {
			err := out.writeJSON(all)
			if len(active) == 0 {
				err = errors.Join(err, o.unthrottle(ctx, cl, list, out))
			}
			return errors.Join(err, pending)
		}
		var b strings.Builder
		b.WriteString("Status of partition reassignment:\n")
		for _, s := range all {
			b.WriteString(s.line() + "\n")
		}
		b.WriteString("\n")
		if _, err := out.Out.Write([]byte(b.String())); err != nil {
			return err
		}
		if len(active) > 0 {
			return pending
		}
		return errors.Join(o.unthrottle(ctx, cl, list, out), pending)
	})
}

const (
	statusCompleted = "completed"
	statusActive    = "in progress"
	statusDifferent = "different"
)

func statusOf(r reassignment, current []int32, active []activeReassignment) reassignmentStatus {
	s := reassignmentStatus{r.topicPartition, statusDifferent, current, r.Replicas}
	at := slices.IndexFunc(active, func(a activeReassignment) bool { return a.topicPartition == r.topicPartition })
	switch {
	case at >= 0:
		s.Status = statusActive
		s.Current = active[at].target()
	case slices.Equal(current, r.Replicas):
		s.Status = statusCompleted
	}
	return s
}

// line is Kafka's line.
func (s reassignmentStatus) line() string {
	switch {
	case s.Status == statusCompleted:
		return fmt.Sprintf("Reassignment of partition %s is completed.", s.topicPartition)
	case s.Status == statusActive && !slices.Equal(s.Current, s.Wanted):
		return fmt.Sprintf("There is an active reassignment of partition %s, but replica set is %s rather than %s.",
			s.topicPartition, joinIDs(s.Current, ""), joinIDs(s.Wanted, ""))
	case s.Status == statusActive:
		return fmt.Sprintf("Reassignment of partition %s is still in progress.", s.topicPartition)
	default:
		return fmt.Sprintf("There is no active reassignment of partition %s, but replica set is %s rather than %s.",
			s.topicPartition, joinIDs(s.Current, ""), joinIDs(s.Wanted, ""))
	}
}
