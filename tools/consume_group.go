package tools

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// leaveTimeout bounds the last commit and the farewell of a member.
const leaveTimeout = 10 * time.Second

// checkGroup refuses what has no meaning for a member of a group, to which others tell what it reads.
func (o ConsumeOptions) checkGroup() error {
	switch {
	case o.Group == "":
		return nil
	case o.Partition >= 0:
		return errors.New("--group and --partition exclude each other: the group shares the partitions out")
	case o.Offset != "" && o.Offset != "latest":
		return errors.New("--group and --offset exclude each other: a group goes on where it has committed; --from-beginning is for where it has not")
	}
	return nil
}

// consumeGroup prints records as a member of a consumer group. What was printed is committed from time to time, at each rebalance and at
// the end; what was fetched beyond that is not.
func (o ConsumeOptions) consumeGroup(ctx context.Context, conn Connection, start kgo.Offset, format recordFormatter, out Output, opts []kgo.Opt) error {
	commit := func(ctx context.Context, cl *kgo.Client, _ map[string][]int32) {
		ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
		defer cancel()
		if err := cl.CommitMarkedOffsets(ctx); err != nil {
			out.warn("committing offsets before partitions are given up: %v", err)
		}
	}
	opts = append(opts, kgo.ConsumerGroup(o.Group), kgo.ConsumeResetOffset(start), kgo.AutoCommitMarks(), kgo.OnPartitionsRevoked(commit), kgo.BlockRebalanceOnPoll())
	if o.Include == "" {
		opts = append(opts, kgo.ConsumeTopics(o.Topic))
	}
	cl, err := conn.open(ctx, out, append(opts, o.included()...)...)
	if err != nil {
		return err
	}
	defer cl.CloseAllowingRebalance()
	if o.Include == "" {
		if _, err := partitionsOf(ctx, cl, o.Topic, -1); err != nil {
			return err
		}
	}
	c := consumption{cl: cl, opts: o, format: format, out: out}
	err = c.run(ctx)
	out.note("Processed a total of %d messages", c.count)
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if e := cl.CommitMarkedOffsets(leave); e != nil {
		err = errors.Join(err, fmt.Errorf("committing what was read: %w", e))
	}
	return err
}
