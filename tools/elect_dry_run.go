package tools

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"cairn/wire/private"
)

// The results of a dry run, as the brokers send them.
type (
	ElectionPreview = private.ElectionPreview
	ReplicaPreview  = private.ReplicaPreview
	LostRange       = private.LostRange
)

// ElectDryRun returns what the election would do and lose, without holding it.
func ElectDryRun(ctx context.Context, conn Connection, o ElectOptions) ([]ElectionPreview, error) {
	kind, _, err := o.kind()
	if err != nil {
		return nil, err
	}
	list, err := o.partitions()
	if err != nil {
		return nil, err
	}
	req := &private.ElectionsRequest{Body: private.ElectionQuery{Type: kind}}
	topics, partitions := byTopic(list)
	for _, t := range topics {
		req.Body.Topics = append(req.Body.Topics, private.TopicPartitions{Topic: t, Partitions: partitions[t]})
	}
	ctx, cancel := context.WithTimeout(ctx, electTimeout)
	defer cancel()
	answer, err := conn.askAny(ctx, req)
	if err != nil {
		return nil, err
	}
	body := answer.(*private.ElectionsResponse).Body
	if err := brokerError(body.Code, &body.Message); err != nil {
		return nil, fmt.Errorf("%w; try again, or look at the log of the controllers", err)
	}
	return body.Partitions, nil
}

func electDryRun(ctx context.Context, conn Connection, o ElectOptions, out Output) error {
	previews, err := ElectDryRun(ctx, conn, o)
	if err != nil {
		return err
	}
	missing := missingPartitions(previews)
	if out.JSON {
		return errors.Join(out.writeJSON(previews), missing)
	}
	_, name, err := o.kind()
	if err != nil {
		return err
	}
	var b strings.Builder
	for i, p := range previews {
		if i > 0 {
			b.WriteString("\n")
		}
		appendPreview(&b, p, name)
	}
	_, err = out.Out.Write([]byte(b.String()))
	return errors.Join(err, missing)
}

// missingPartitions is the error for partitions that do not exist: nothing can be foretold about them, and no election could be held.
func missingPartitions(previews []ElectionPreview) error {
	n := 0
	for _, p := range previews {
		if p.Replicas == nil {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d partition(s) do not exist; `cairn topics describe` shows those that do", n)
}

// appendPreview prints one partition: as it is, its replicas, and what the election would do.
func appendPreview(b *strings.Builder, p ElectionPreview, electionType string) {
	if p.Replicas == nil {
		fmt.Fprintf(b, "%s-%d: %s\n", p.Topic, p.Partition, exception(p.Outcome.Code, p.Outcome.Message))
		return
	}
	leader := "none"
	if p.Leader >= 0 {
		leader = fmt.Sprint(p.Leader)
	}
	fmt.Fprintf(b, "Topic: %s\tPartition: %d\tLeader: %s\tLeaderEpoch: %d\tIsr: %s\tElr: %s\tLastKnownElr: %s\n", p.Topic, p.Partition,
		leader, p.LeaderEpoch, joinIDs(p.ISR, ""), joinIDs(p.ELR, ""), joinIDs(p.LastKnownELR, ""))
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "  broker\tstate\tin\tlog end\tleader epoch\tlast append\tas of\tpromoting it would lose") // to memory
	for _, r := range p.Replicas {
		end, epoch, appended := "unknown", "-", "-"
		if r.Known {
			end, epoch, appended = fmt.Sprint(r.LogEnd), fmt.Sprint(r.LeaderEpoch), timeText(r.LastAppendMs)
		}
		_, _ = fmt.Fprintf(w, "  %d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Broker, state(r), membership(r), end, epoch, appended, asOf(r), lostText(r.WouldLose))
	}
	_ = w.Flush()
	fmt.Fprintf(b, "%s: %s\n", electionType, verdict(p))
}

func state(r ReplicaPreview) string {
	if r.Alive {
		return "alive"
	}
	return "fenced"
}

func membership(r ReplicaPreview) string {
	switch {
	case r.InISR:
		return "ISR"
	case r.InELR:
		return "ELR"
	default:
		return "-"
	}
}

func asOf(r ReplicaPreview) string {
	switch {
	case r.Live:
		return "asked now"
	case r.Known:
		return fmt.Sprintf("last heard %s ago", (time.Duration(r.AgeMs) * time.Millisecond).Round(100*time.Millisecond))
	default:
		return "never heard"
	}
}

// timeText is the time in ms since 1970, in UTC.
func timeText(ms int64) string {
	if ms < 0 {
		return "never"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// lostText lists ranges with their inclusive last offsets, as people count.
func lostText(ranges []LostRange) string {
	if len(ranges) == 0 {
		return "nothing known"
	}
	var parts []string
	for _, r := range ranges {
		parts = append(parts, fmt.Sprintf("offsets %d..%d of leader epoch %d (%d records)", r.From, r.To-1, r.LeaderEpoch, r.To-r.From))
	}
	return strings.Join(parts, ", ")
}

// silent names the replicas that could not be asked: what they took since they were last heard is lost, too.
func silent(p ElectionPreview) string {
	var list []int32
	for _, r := range p.Replicas {
		if !r.Live && r.Broker != p.Elects {
			list = append(list, r.Broker)
		}
	}
	if list == nil {
		return ""
	}
	return fmt.Sprintf(", besides what was taken since they were last heard by brokers that do not answer: %s", joinIDs(list, ""))
}

func verdict(p ElectionPreview) string {
	switch {
	case p.Elects < 0:
		return "no election: " + exception(p.Outcome.Code, p.Outcome.Message)
	case p.Clean:
		text := fmt.Sprintf("would make broker %d the leader, which holds all that was ever visible to consumers", p.Elects)
		if len(p.Loses) > 0 {
			text += "; what was not is lost: " + lostText(p.Loses)
		}
		return text
	}
	text := fmt.Sprintf("would make broker %d the leader and lose %s", p.Elects, lostText(p.Loses)) + silent(p)
	if p.Outcome.Code != 0 {
		text += "; not before the lease of the old leader is over: " + p.Outcome.Message
	}
	return text
}
