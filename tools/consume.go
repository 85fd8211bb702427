package tools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ConsumeOptions are the options of the console consumer. Without a group it reads all partitions directly, those too that come later, as
// Kafka's does in a group of its own that commits nothing: the records are the same, and nobody waits for a rebalance.
type ConsumeOptions struct {
	Topic               string
	Include             string // instead: topics whose whole names match this regular expression, those too that come later
	Group               string // share the topic with the other members of a consumer group, and commit
	Partition           int32  // -1: all of them
	Offset              string // earliest, latest or a number; with a number a partition is needed
	FromBeginning       bool   // as Offset earliest
	MaxMessages         int64  // stop after so many; -1: none
	Timeout             time.Duration
	Isolation           string   // read_uncommitted, read_committed
	FormatterProperties []string // NAME=VALUE
	Raw                 bool     // values alone, byte for byte, nothing between them
}

// DefaultConsumeOptions are Kafka's defaults.
func DefaultConsumeOptions() ConsumeOptions {
	return ConsumeOptions{Partition: -1, Offset: "latest", MaxMessages: -1, Isolation: "read_uncommitted"}
}

// errNoPartition is returned for a partition that its topic does not have.
var errNoPartition = errors.New("no partition")

// start is where to begin. A number that is out of range is an error; latest and earliest have no such case.
func (o ConsumeOptions) start() (kgo.Offset, error) {
	none := kgo.NoResetOffset()
	if o.FromBeginning {
		if o.Offset != "latest" && o.Offset != "" && o.Offset != "earliest" {
			return none, errors.New("--from-beginning and --offset exclude each other")
		}
		return none.AtStart(), nil
	}
	switch o.Offset {
	case "latest", "":
		return none.AtEnd(), nil
	case "earliest":
		return none.AtStart(), nil
	}
	n, err := strconv.ParseInt(o.Offset, 10, 64)
	if err != nil || n < 0 {
		return none, fmt.Errorf("--offset %q: want earliest, latest or a number", o.Offset)
	}
	if o.Partition < 0 {
		return none, errors.New("--offset with a number needs --partition")
	}
	return none.At(n), nil
}

func (o ConsumeOptions) formatter(asJSON bool) (recordFormatter, error) {
	props, err := parseFormatterProperties(o.FormatterProperties)
	switch {
	case err != nil:
		return nil, err
	case o.Raw && asJSON:
		return nil, errors.New("--raw and --json exclude each other")
	case o.Raw:
		return formatRaw, nil
	case asJSON:
		return formatJSON, nil
	default:
		return props.text, nil
	}
}

// Consume prints records until MaxMessages, the timeout without a record, or the end of ctx; then it says on out.Err how many there were.
func Consume(ctx context.Context, conn Connection, o ConsumeOptions, out Output) error {
	if err := errors.Join(o.checkGroup(), o.checkInclude()); err != nil {
		return UsageError{err}
	}
	start, err := o.start()
	if err != nil {
		return UsageError{err}
	}
	format, err := o.formatter(out.JSON)
	if err != nil {
		return UsageError{err}
	}
	isolation, err := parseIsolation(o.Isolation)
	if err != nil {
		return UsageError{fmt.Errorf("--isolation-level %s: %w", o.Isolation, err)}
	}
	opts := []kgo.Opt{kgo.FetchIsolationLevel(isolation), kgo.ConsiderMissingTopicDeletedAfter(DefaultRequestTimeout)}
	if o.Group != "" {
		return o.consumeGroup(ctx, conn, start, format, out, opts)
	}
	opts = append(opts, kgo.ConsumeStartOffset(start), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	cl, err := conn.open(ctx, out, append(opts, o.included()...)...)
	if err != nil {
		return err
	}
	defer cl.Close()
	if o.Include == "" {
		// That a wrong topic or partition is an error is seen here; reading would wait for it.
		if _, err := partitionsOf(ctx, cl, o.Topic, o.Partition); err != nil {
			return err
		}
		if o.Partition < 0 {
			cl.AddConsumeTopics(o.Topic)
		} else {
			cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{o.Topic: {o.Partition: start}})
		}
	}
	c := consumption{cl: cl, opts: o, format: format, out: out}
	err = c.run(ctx)
	out.note("Processed a total of %d messages", c.count)
	return err
}

// partitionsOf returns the partitions of a topic that fit: all of them with partition -1, else that one. There is an error if none does; the
// topic is not created.
func partitionsOf(ctx context.Context, cl *kgo.Client, topic string, partition int32) ([]int32, error) {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	var fit []int32
	for _, t := range resp.Topics {
		err := brokerError(t.ErrorCode, nil)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil, TopicSelection{Topic: topic}.missing()
		}
		if err != nil {
			return nil, fmt.Errorf("topic '%s': %w", topic, err)
		}
		for _, p := range t.Partitions {
			if partition < 0 || p.Partition == partition {
				fit = append(fit, p.Partition)
			}
		}
		if len(fit) == 0 {
			return nil, fmt.Errorf("topic '%s' has %w %d: it has %d, numbered from 0", topic, errNoPartition, partition, len(t.Partitions))
		}
	}
	return fit, nil
}

// consumption is one run of Consume.
type consumption struct {
	cl     *kgo.Client
	opts   ConsumeOptions
	format recordFormatter
	out    Output
	count  int64
	buf    []byte
}

func (c *consumption) run(ctx context.Context) error {
	for c.opts.MaxMessages < 0 || c.count < c.opts.MaxMessages {
		fetches, err := c.poll(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if fetches == nil {
			c.out.note("no record for %v: stopping", c.opts.Timeout)
			return c.tellLeaderless(ctx)
		}
		records := fetches.Records()
		if left := c.opts.MaxMessages - c.count; c.opts.MaxMessages >= 0 && int64(len(records)) > left {
			records = records[:left]
		}
		if c.buf, err = writeAll(c.out.Out, c.buf, c.format, records); err != nil {
			return err
		}
		c.count += int64(len(records))
		if c.opts.Group != "" {
			c.cl.MarkCommitRecords(records...)
		}
	}
	return nil
}

// tellLeaderless warns of partitions that nobody can be asked about: that nothing came from them does not mean that nothing is there.
func (c *consumption) tellLeaderless(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	if c.opts.Include == "" { // else all are asked about
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(c.opts.Topic)
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, c.cl)
	if err != nil {
		return err
	}
	var leaderless []topicPartition
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.Leader < 0 && c.opts.takes(deref(t.Topic), p.Partition) {
				leaderless = append(leaderless, topicPartition{deref(t.Topic), p.Partition})
			}
		}
	}
	if len(leaderless) > 0 {
		slices.SortFunc(leaderless, compareTopicPartitions)
		c.out.warn("without leader, and so not read: %s; `cairn status` tells of the brokers",
			joinPartitions(leaderless[:min(len(leaderless), statusListMax)], " ")+more(len(leaderless)))
	}
	return nil
}

// poll waits for records. Nil without error: the timeout passed, or ctx ended.
func (c *consumption) poll(ctx context.Context) (kgo.Fetches, error) {
	if c.opts.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.opts.Timeout)
		defer cancel()
	}
	for {
		c.cl.AllowRebalance() // what was polled before is printed and marked; without a group this does nothing
		fetches := c.cl.PollRecords(ctx, 10000)
		for _, e := range fetches.Errors() {
			var session *kgo.ErrGroupSession
			switch {
			case errors.As(e.Err, &session):
				c.out.warn("out of the group, joining again: %v", session.Err) // as after a long stop of this process
			case errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, context.Canceled):
			case errors.Is(e.Err, kerr.OffsetOutOfRange):
				return nil, fmt.Errorf("offset %s of %s-%d is not in the log; --offset earliest starts at its beginning", c.opts.Offset, e.Topic, e.Partition)
			default:
				return nil, fmt.Errorf("%s-%d: %w", e.Topic, e.Partition, e.Err)
			}
		}
		if fetches.NumRecords() > 0 {
			return fetches, nil
		}
		if ctx.Err() != nil {
			return nil, nil
		}
	}
}
