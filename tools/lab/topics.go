package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// partitionState is what describe shows of a partition.
type partitionState struct {
	leader                 int32 // -1: none
	epoch                  int32
	isr, elr, lastKnownELR []int32
}

func joined(list []int32) string {
	var s []string
	for _, id := range list {
		s = append(s, strconv.Itoa(int(id)))
	}
	return strings.Join(s, ",")
}

// String writes the state as `cairn topics describe` does.
func (p partitionState) String() string {
	leader := "none"
	if p.leader >= 0 {
		leader = strconv.Itoa(int(p.leader))
	}
	return fmt.Sprintf("Leader: %s Isr: %s Elr: %s LastKnownElr: %s", leader, joined(p.isr), joined(p.elr), joined(p.lastKnownELR))
}

// describeAt asks one broker for the partitions of a topic.
func describeAt(ctx context.Context, addr, topic string) ([]partitionState, error) {
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
	rt.Topic = topic
	req.Topics, req.ResponsePartitionLimit = append(req.Topics, rt), 100
	resp, err := ask[*kmsg.DescribeTopicPartitionsResponse](ctx, addr, req, callLimit)
	if err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 {
		return nil, fmt.Errorf("%s describes %d topics where one was asked for", addr, len(resp.Topics))
	}
	t := resp.Topics[0]
	if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
		return nil, err
	}
	if len(t.Partitions) == 0 {
		return nil, fmt.Errorf("%s describes no partition of %s", addr, topic)
	}
	list := make([]partitionState, len(t.Partitions))
	for _, p := range t.Partitions {
		if int(p.Partition) >= len(list) {
			return nil, fmt.Errorf("%s describes partition %d of %d", addr, p.Partition, len(list))
		}
		list[p.Partition] = partitionState{p.LeaderID, p.LeaderEpoch, p.ISR, p.EligibleLeaderReplicas, p.LastKnownELR}
	}
	return list, nil
}

// describeAll asks all brokers that serve; they must agree, or the error says that they do not (yet).
func (w *world) describeAll(ctx context.Context, topic string) ([]partitionState, error) {
	addrs := w.addresses()
	if len(addrs) == 0 {
		return nil, errors.New("no broker serves")
	}
	var first []partitionState
	for i, addr := range addrs {
		list, err := describeAt(ctx, addr, topic)
		switch {
		case err != nil:
			return list, err
		case i == 0:
			first = list
		case fmt.Sprint(list) != fmt.Sprint(first):
			return first, fmt.Errorf("another broker says %v", list)
		}
	}
	return first, nil
}

// describe is describeAll of the first partition.
func (w *world) describe(ctx context.Context, topic string) (partitionState, error) {
	list, err := w.describeAll(ctx, topic)
	if len(list) == 0 {
		return partitionState{leader: -1}, err
	}
	return list[0], err
}

// lookAt is a look for await and watch: the state of a topic, and whether holds is true of it.
func (w *world) lookAt(topic string, holds func(partitionState) bool) func(context.Context) (string, bool, error) {
	return func(ctx context.Context) (string, bool, error) {
		p, err := w.describe(ctx, topic)
		return p.String(), err == nil && holds(p), err
	}
}

// createTopic creates topics with the partitions' replicas as given and waits until their first replicas lead.
func (w *world) createTopic(ctx context.Context, topic string, minISR int, assignment ...[]int32) (string, error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(7)
	req.TimeoutMillis = int32(callLimit.Milliseconds())
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, -1, -1
	for i, replicas := range assignment {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), replicas
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	config := kmsg.NewCreateTopicsRequestTopicConfig()
	config.Name, config.Value = "min.insync.replicas", kmsg.StringPtr(strconv.Itoa(minISR))
	t.Configs = append(t.Configs, config)
	req.Topics = append(req.Topics, t) // a copy of t
	resp, err := ask[*kmsg.CreateTopicsResponse](ctx, w.addresses()[0], req, 2*callLimit)
	if err != nil {
		return "", err
	}
	for _, rt := range resp.Topics {
		if err := kerr.ErrorForCode(rt.ErrorCode); err != nil {
			return "", fmt.Errorf("creating topic %s: %w", topic, err)
		}
	}
	_, seen, err := w.await(ctx, "the first replicas to lead, with all replicas in sync", startLimit, func(ctx context.Context) (string, bool, error) {
		list, err := w.describeAll(ctx, topic)
		if err != nil || len(list) != len(assignment) {
			return fmt.Sprint(list), false, err
		}
		for i, p := range list {
			if p.leader != assignment[i][0] || !slices.Equal(p.isr, assignment[i]) {
				return p.String(), false, nil
			}
			if _, err := w.listOffset(ctx, topic, int32(i), p.leader, latestOffset); err != nil {
				return p.String(), false, err
			}
		}
		return list[0].String(), true, nil
	})
	return seen, err
}

// brokers lists the brokers that are not fenced, as the first that serves tells.
func (w *world) brokers(ctx context.Context) ([]int32, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(12)
	req.Topics = []kmsg.MetadataRequestTopic{} // none; null would be all
	resp, err := ask[*kmsg.MetadataResponse](ctx, w.addresses()[0], req, callLimit)
	if err != nil {
		return nil, err
	}
	var ids []int32
	for _, b := range resp.Brokers {
		ids = append(ids, b.NodeID)
	}
	slices.Sort(ids)
	return ids, nil
}

// elect asks for an election of the first partition of a topic.
func (w *world) elect(ctx context.Context, topic string, electionType int8) error {
	req := kmsg.NewPtrElectLeadersRequest()
	req.SetVersion(2)
	req.ElectionType, req.TimeoutMillis = electionType, int32(callLimit.Milliseconds())
	rt := kmsg.NewElectLeadersRequestTopic()
	rt.Topic, rt.Partitions = topic, []int32{0}
	req.Topics = append(req.Topics, rt)
	resp, err := ask[*kmsg.ElectLeadersResponse](ctx, w.addresses()[0], req, 2*callLimit)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("election of %s-%d: %w", t.Topic, p.Partition, err)
			}
		}
	}
	return nil
}

// timestamps that stand for the ends of a partition.
const (
	earliestOffset = -2
	latestOffset   = -1
)

// offsets asks the leader where the first partition begins and where consumers' reading ends, which is the high watermark. A leader that
// does not serve yet is an error.
func (w *world) offsets(ctx context.Context, topic string) (start, end int64, err error) {
	p, err := w.describe(ctx, topic)
	if err != nil {
		return 0, 0, err
	}
	if p.leader < 0 {
		return 0, 0, errors.New("the partition has no leader")
	}
	if start, err = w.listOffset(ctx, topic, 0, p.leader, earliestOffset); err != nil {
		return 0, 0, err
	}
	end, err = w.listOffset(ctx, topic, 0, p.leader, latestOffset)
	return start, end, err
}

// listOffset asks a leader for an offset of a partition.
func (w *world) listOffset(ctx context.Context, topic string, partition, leader int32, timestamp int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.SetVersion(7)
	rt := kmsg.NewListOffsetsRequestTopic()
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = partition, timestamp
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := ask[*kmsg.ListOffsetsResponse](ctx, w.node(int(leader)).Addr, req, callLimit)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("ListOffsets answers for other partitions than asked")
	}
	got := resp.Topics[0].Partitions[0]
	return got.Offset, kerr.ErrorForCode(got.ErrorCode)
}
