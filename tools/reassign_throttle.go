package tools

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The configs of the replication throttle, of topics and of brokers.
const (
	leaderReplicas   = "leader.replication.throttled.replicas"
	followerReplicas = "follower.replication.throttled.replicas"
	leaderRate       = "leader.replication.throttled.rate"
	followerRate     = "follower.replication.throttled.rate"
)

// throttlePlan is what a throttle has to be set for: replicas that give, and replicas that take, by topic.
type throttlePlan struct {
	leaders, followers map[string][]string // partition:broker
	brokers            []int32             // all of them
}

// planThrottle looks what the move of partitions to new replicas takes from whom. Replicas that an active move is adding give nothing yet.
func planThrottle(wanted []reassignment, current reassignmentFile, active []activeReassignment) throttlePlan {
	plan := throttlePlan{leaders: map[string][]string{}, followers: map[string][]string{}}
	for i, w := range wanted {
		sources := current.Partitions[i].Replicas
		for _, a := range active {
			if a.topicPartition == w.topicPartition {
				sources = slices.DeleteFunc(slices.Clone(a.Replicas), func(n int32) bool { return slices.Contains(a.Adding, n) })
			}
		}
		for _, n := range sources {
			plan.leaders[w.Topic] = append(plan.leaders[w.Topic], fmt.Sprintf("%d:%d", w.Partition, n))
			plan.brokers = append(plan.brokers, n)
		}
		for _, n := range w.Replicas {
			if !slices.Contains(sources, n) {
				plan.followers[w.Topic] = append(plan.followers[w.Topic], fmt.Sprintf("%d:%d", w.Partition, n))
				plan.brokers = append(plan.brokers, n)
			}
		}
	}
	slices.Sort(plan.brokers)
	plan.brokers = slices.Compact(plan.brokers)
	return plan
}

// set sets the throttle, before the reassignment begins.
func (p throttlePlan) set(ctx context.Context, cl *kgo.Client, rate int64) error {
	for topic, leaders := range p.leaders {
		configs := map[string]string{leaderReplicas: list(leaders)}
		if f := p.followers[topic]; len(f) > 0 {
			configs[followerReplicas] = list(f)
		}
		if err := alterConfigs(ctx, cl, ConfigEntity{Type: topicEntities, Name: topic}, configs, nil); err != nil {
			return err
		}
	}
	text := strconv.FormatInt(rate, 10)
	for _, id := range p.brokers {
		e := ConfigEntity{Type: brokerEntities, Name: strconv.Itoa(int(id))}
		if err := alterConfigs(ctx, cl, e, map[string]string{leaderRate: text, followerRate: text}, nil); err != nil {
			return err
		}
	}
	return nil
}

func list(items []string) string { return strings.Join(slices.Sorted(slices.Values(items)), ",") }

// clearThrottles takes the throttle of all brokers and of the topics away, and says so in Kafka's lines.
func clearThrottles(ctx context.Context, cl *kgo.Client, topics []string, w io.Writer) error {
	live, err := brokerAddresses(ctx, cl)
	if err != nil {
		return err
	}
	ids := sortedIDs(live)
	if _, err := fmt.Fprintf(w, "Clearing broker-level throttles on brokers %s\n", joinIDs(ids, "")); err != nil {
		return err
	}
	for _, id := range ids {
		e := ConfigEntity{Type: brokerEntities, Name: strconv.Itoa(int(id))}
		if err := alterConfigs(ctx, cl, e, nil, []string{leaderRate, followerRate}); err != nil {
			return err
		}
	}
	word := "topic"
	if len(topics) > 1 {
		word = "topics"
	}
	if _, err := fmt.Fprintf(w, "Clearing topic-level throttles on %s %s\n", word, strings.Join(topics, ",")); err != nil {
		return err
	}
	for _, topic := range topics {
		if err := alterConfigs(ctx, cl, ConfigEntity{Type: topicEntities, Name: topic}, nil, []string{leaderReplicas, followerReplicas}); err != nil {
			return err
		}
	}
	return nil
}
