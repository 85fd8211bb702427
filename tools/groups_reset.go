package tools

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ResetOffsetsOptions says which offsets of which groups to set to what. Exactly one of the fields from ToOffset to File is
// given. Without Execute nothing is changed.
type ResetOffsetsOptions struct {
	GroupSelection
	Topics    []string // t, or t:0,1 for some partitions
	AllTopics bool     // those that the group has committed offsets of
	Execute   bool
	Export    bool // print CSV that File takes

	ToOffset   *int64
	ShiftBy    *int64
	ToEarliest bool
	ToLatest   bool
	ToCurrent  bool
	ToDatetime string // YYYY-MM-DDThh:mm:ss.sss, with a zone or in UTC
	ByDuration string // PnDTnHnMnS before now
	File       string // CSV: topic,partition,offset, with the group in front where there are several
}

func (o ResetOffsetsOptions) check() error {
	ways := 0
	for _, chosen := range []bool{
		o.ToOffset != nil, o.ShiftBy != nil, o.ToEarliest, o.ToLatest, o.ToCurrent, o.ToDatetime != "", o.ByDuration != "", o.File != "",
	} {
		if chosen {
			ways++
		}
	}
	switch {
	case ways != 1:
		return errors.New("say what to reset to in one way: --to-offset, --to-earliest, --to-latest, --to-current, --shift-by, --to-datetime, --by-duration or --from-file")
	case o.File != "" && (len(o.Topics) > 0 || o.AllTopics):
		return errors.New("--from-file names the partitions itself: leave --topic and --all-topics out")
	case o.File == "" && (len(o.Topics) > 0) == o.AllTopics:
		return errors.New("say which partitions: --topic NAME[:PARTITION,...], which may be repeated, or --all-topics")
	}
	return o.GroupSelection.check()
}

// resetOffset is the JSON form of one offset of the plan.
type resetOffset struct {
	Group string `json:"group"`
	topicPartition
	Offset int64 `json:"newOffset"`
}

// ResetOffsets prints what the offsets of groups without members would be set to, and with Execute sets them.
func ResetOffsets(ctx context.Context, conn Connection, o ResetOffsetsOptions, out Output) error {
	if err := o.check(); err != nil {
		return UsageError{err}
	}
	target, err := o.time(time.Now())
	if err != nil {
		return UsageError{err}
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		names, err := o.find(ctx, cl)
		if err != nil {
			return err
		}
		var plan []resetOffset
		for _, name := range names {
			r := resetting{ctx: ctx, cl: cl, adm: kadm.NewClient(cl), opts: o, group: name, target: target, out: out, single: len(names) == 1}
			part, err := r.run()
			if err != nil {
				return fmt.Errorf("group '%s': %w", name, err)
			}
			plan = append(plan, part...)
		}
		if !o.Execute {
			out.note("Nothing is changed without --execute.")
		}
		return o.print(plan, len(names) == 1, out)
	})
}

func (o ResetOffsetsOptions) print(plan []resetOffset, single bool, out Output) error {
	if out.JSON {
		return out.writeJSON(plan)
	}
	var b strings.Builder
	if o.Export {
		for _, p := range plan {
			if !single {
				b.WriteString(p.Group + ",")
			}
			fmt.Fprintf(&b, "%s,%d,%d\n", p.Topic, p.Partition, p.Offset)
		}
	} else {
		var t table
		t.column("GROUP", columnWidth)
		t.column("TOPIC", columnWidth)
		t.column("PARTITION", 10)
		t.column("NEW-OFFSET", 0)
		for _, p := range plan {
			t.row(p.Group, p.Topic, fmt.Sprint(p.Partition), fmt.Sprint(p.Offset))
		}
		t.write(&b)
	}
	_, err := out.Out.Write([]byte(b.String()))
	return err
}

// time is what --to-datetime or --by-duration stand for; zero: neither is given. No record is older than 1970, and to brokers a time before it means
// something else, or nothing.
func (o ResetOffsetsOptions) time(now time.Time) (at time.Time, err error) {
	switch {
	case o.ToDatetime != "":
		at, err = parseDatetime("--to-datetime", o.ToDatetime)
	case o.ByDuration != "":
		var d time.Duration
		d, err = parsePeriod(o.ByDuration)
		at = now.Add(-d)
	default:
		return at, nil
	}
	if epoch := time.UnixMilli(0); at.Before(epoch) {
		at = epoch
	}
	return at, err
}

// resetting plans and sets the offsets of one group.
type resetting struct {
	ctx    context.Context
	cl     *kgo.Client
	adm    *kadm.Client
	opts   ResetOffsetsOptions
	group  string
	target time.Time
	single bool
	out    Output
}

func (r *resetting) run() ([]resetOffset, error) {
	if err := r.checkInactive(); err != nil {
		return nil, err
	}
	committed, err := r.adm.FetchOffsets(r.ctx, r.group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // a group that is not there has committed nothing
		return nil, err
	}
	wanted, err := r.wanted(committed)
	if err != nil {
		return nil, err
	}
	plan, err := r.plan(wanted, committed)
	if err != nil || !r.opts.Execute || len(plan) == 0 {
		return plan, err
	}
	offsets := kadm.Offsets{}
	for _, p := range plan {
		offsets.AddOffset(p.Topic, p.Partition, p.Offset, -1)
	}
	return plan, r.adm.CommitAllOffsets(r.ctx, r.group, offsets)
}

// checkInactive refuses a group that has members: they would go on where they are. One that is not there is made, as Kafka's tool makes it; since
// its name may be a typing error, that is said.
func (r *resetting) checkInactive() error {
	groups, err := describeGroups(r.ctx, r.cl, []string{r.group})
	if errors.Is(err, errNoGroup) {
		if r.opts.Execute {
			r.out.warn("Group '%s' did not exist; it is created with these offsets. `cairn groups delete --group` removes it", r.group)
		} else {
			r.out.warn("Group '%s' does not exist; --execute would create it", r.group)
		}
		return nil
	}
	if err == nil && groups[0].State != "Empty" {
		err = fmt.Errorf("offsets can only be reset if the group is inactive, but the current state is %s: stop its consumers first", groups[0].State)
	}
	return err
}

// wanted lists the partitions to reset; with a file it is nil.
func (r *resetting) wanted(committed kadm.OffsetResponses) ([]topicPartition, error) {
	var list []topicPartition
	if r.opts.AllTopics {
		for topic, parts := range committed {
			for p := range parts {
				list = append(list, topicPartition{topic, p})
			}
		}
	}
	for _, t := range r.opts.Topics {
		some, err := r.partitionsOf(t)
		if err != nil {
			return nil, err
		}
		list = append(list, some...)
	}
	slices.SortFunc(list, compareTopicPartitions)
	return slices.Compact(list), nil
}

// partitionsOf reads t or t:0,1 and checks that the partitions exist.
func (r *resetting) partitionsOf(text string) ([]topicPartition, error) {
	topic, picked, err := parseTopicPartitions(text)
	if err != nil {
		return nil, UsageError{err}
	}
	all, err := partitionsOf(r.ctx, r.cl, topic, -1)
	if err != nil {
		return nil, err
	}
	var list []topicPartition
	for _, p := range picked {
		if !slices.Contains(all, p) {
			return nil, fmt.Errorf("topic '%s' has %w %d: it has %d, numbered from 0", topic, errNoPartition, p, len(all))
		}
	}
	for _, p := range all {
		if len(picked) == 0 || slices.Contains(picked, p) {
			list = append(list, topicPartition{topic, p})
		}
	}
	return list, nil
}

// plan says what each partition is set to, within its log.
func (r *resetting) plan(wanted []topicPartition, committed kadm.OffsetResponses) ([]resetOffset, error) {
	var fixed map[topicPartition]int64
	if r.opts.File != "" {
		var err error
		if fixed, err = readOffsetsFile(r.opts.File, r.group, r.single); err != nil {
			return nil, err
		}
		for tp := range fixed {
			wanted = append(wanted, tp)
		}
		slices.SortFunc(wanted, compareTopicPartitions)
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	b, err := r.bounds(wanted)
	if err != nil {
		return nil, err
	}
	var plan []resetOffset
	for _, tp := range wanted {
		start, end, err := b.of(tp)
		if err != nil {
			return nil, err
		}
		at := int64(-1)
		if o, ok := committed.Lookup(tp.Topic, tp.Partition); ok {
			at = o.At
		}
		to, err := r.offset(tp, at, start, end, b, fixed)
		if err != nil {
			return nil, err
		}
		plan = append(plan, resetOffset{r.group, tp, r.within(tp, to, start, end)})
	}
	return plan, nil
}

// offset is what a partition is set to, not yet held to the log's bounds. at is what is committed, -1 nothing.
func (r *resetting) offset(tp topicPartition, at, start, end int64, b *logBounds, fixed map[topicPartition]int64) (int64, error) {
	switch o := r.opts; {
	case fixed != nil:
		return fixed[tp], nil
	case o.ToOffset != nil:
		return *o.ToOffset, nil
	case o.ToEarliest:
		return start, nil
	case o.ShiftBy != nil && at < 0:
		return 0, fmt.Errorf("cannot shift the offset of partition %s: there is no current committed offset", tp)
	case o.ShiftBy != nil:
		return at + min(*o.ShiftBy, math.MaxInt64-at), nil
	case o.ToCurrent && at >= 0:
		return at, nil
	case !r.target.IsZero():
		if t, ok := b.times.Lookup(tp.Topic, tp.Partition); ok && t.Err == nil && t.Offset >= 0 {
			return t.Offset, nil
		}
	}
	return end, nil // latest, also where nothing is committed or no record is that young
}

// within holds an offset to the log, as Kafka's tool does.
func (r *resetting) within(tp topicPartition, to, start, end int64) int64 {
	switch {
	case to > end:
		r.out.warn("New offset (%d) is higher than latest offset for topic partition %s. Value will be set to %d", to, tp, end)
		return end
	case to < start:
		r.out.warn("New offset (%d) is lower than earliest offset for topic partition %s. Value will be set to %d", to, tp, start)
		return start
	}
	return to
}

// logBounds are where logs start and end, and where they are as old as was asked for.
type logBounds struct{ starts, ends, times kadm.ListedOffsets }

func (r *resetting) bounds(list []topicPartition) (*logBounds, error) {
	topics, _ := byTopic(list)
	var b logBounds
	var err error
	if b.starts, err = r.adm.ListStartOffsets(r.ctx, topics...); err != nil {
		return nil, fmt.Errorf("asking for the starts of the logs: %w", err)
	}
	if b.ends, err = r.adm.ListEndOffsets(r.ctx, topics...); err != nil {
		return nil, fmt.Errorf("asking for the ends of the logs: %w", err)
	}
	if !r.target.IsZero() {
		if b.times, err = r.adm.ListOffsetsAfterMilli(r.ctx, r.target.UnixMilli(), topics...); err != nil {
			return nil, fmt.Errorf("asking for offsets by time: %w", err)
		}
	}
	return &b, nil
}

func (b *logBounds) of(tp topicPartition) (start, end int64, err error) {
	s, okStart := b.starts.Lookup(tp.Topic, tp.Partition)
	e, okEnd := b.ends.Lookup(tp.Topic, tp.Partition)
	if !okStart || !okEnd {
		return 0, 0, fmt.Errorf("there is %w %s", errNoPartition, tp)
	}
	if err := errors.Join(s.Err, e.Err); err != nil {
		return 0, 0, fmt.Errorf("the log of %s: %w", tp, err)
	}
	return s.Offset, e.Offset, nil
}
