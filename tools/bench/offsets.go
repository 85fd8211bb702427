package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// offsetsRetry is the pause between two questions for offsets while a partition has no leader that answers.
const offsetsRetry = 250 * time.Millisecond

// endOffsets are the offsets at which the topic's partitions end now, by partition. It asks again while brokers come and go, for at most patience.
func endOffsets(ctx context.Context, cl *kgo.Client, topic string, patience time.Duration) (map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		ends, err := askEndOffsets(ctx, cl, topic)
		if err == nil || errors.Is(err, kerr.UnknownTopicOrPartition) {
			return ends, err
		}
		timer := time.NewTimer(offsetsRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}

func askEndOffsets(ctx context.Context, cl *kgo.Client, topic string) (map[int32]int64, error) {
	listed, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := listed.Error(); err != nil {
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil, noTopic(topic)
		}
		return nil, fmt.Errorf("topic %s: %w", topic, err)
	}
	ends := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	if len(ends) == 0 {
		return nil, noTopic(topic)
	}
	return ends, nil
}

func noTopic(topic string) error {
	return fmt.Errorf("topic %s: %w; `cairn topics create --topic %s` makes it", topic, kerr.UnknownTopicOrPartition, topic)
}
