package tools

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"cairn/wire/private"
)

// Loss is a range of records that were stored once and are in no log that is read.
type Loss = private.Loss

// LossesOptions picks losses.
type LossesOptions struct {
	Topic     string // "": all
	Partition int32  // -1: all
}

// ListLosses returns what is known to be lost, oldest first.
func ListLosses(ctx context.Context, conn Connection, o LossesOptions) ([]Loss, error) {
	if o.Topic == "" && o.Partition >= 0 {
		return nil, UsageError{errors.New("--partition needs --topic")}
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	answer, err := conn.askAny(ctx, &private.LossesRequest{Body: private.LossQuery{Topic: o.Topic, Partition: o.Partition}})
	if err != nil {
		return nil, err
	}
	return answer.(*private.LossesResponse).Body.Losses, nil
}

// Losses prints what is known to be lost, oldest first.
func Losses(ctx context.Context, conn Connection, o LossesOptions, out Output) error {
	losses, err := ListLosses(ctx, conn, o)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.writeJSON(losses)
	}
	if len(losses) == 0 {
		_, err := fmt.Fprintln(out.Out, "No losses are known.")
		return err
	}
	var b strings.Builder
	for _, l := range losses {
		fmt.Fprintf(&b, "Topic: %s\tPartition: %d\tLeaderEpoch: %s\tOffsets: %d..%d\tRecords: %d\tCause: %s\tAt: %s\tBroker: %d\t%s\n",
			l.Topic, l.Partition, epochText(l), l.From, l.To-1, l.Records, l.Cause, timeText(l.AtMs), l.Broker, whatIsLeft(l))
	}
	_, err = out.Out.Write([]byte(b.String()))
	return err
}

// epochText is the leader epoch, or those of the ranges that are listed together.
func epochText(l Loss) string {
	if l.Merged == 0 {
		return strconv.Itoa(int(l.LeaderEpoch))
	}
	return fmt.Sprintf("%d..%d (%d ranges in one line)", l.LeaderEpoch, l.LastEpoch, l.Merged)
}

// whatIsLeft says what the broker has of the lost range, and what to do about it.
func whatIsLeft(l Loss) string {
	if l.RecoveredTo != "" {
		recovered := fmt.Sprintf("recovered to %s at %s", l.RecoveredTo, timeText(l.RecoveredMs))
		if l.DroppedMs > 0 {
			return recovered + ", then deleted from quarantine"
		}
		return recovered + ", and still in quarantine"
	}
	switch {
	case l.DroppedMs > 0:
		return "nothing is left: deleted from quarantine at " + timeText(l.DroppedMs)
	case strings.HasPrefix(l.Cause, "power cut"):
		return fmt.Sprintf("by what broker %d reported before: it had them in memory only", l.Broker)
	case l.Estimated:
		return fmt.Sprintf("by what broker %d last reported; it has not come back", l.Broker)
	default:
		return fmt.Sprintf("in quarantine: cairn recover --topic %s --partition %d --broker %d --to TOPIC", l.Topic, l.Partition, l.Broker)
	}
}
