package tools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeGroupsOptions picks groups and what of them to show: offsets with lag (the default), members or the state.
type DescribeGroupsOptions struct {
	GroupSelection
	Offsets, Members, State bool
	Verbose                 bool
}

func (o DescribeGroupsOptions) check() error {
	n := 0
	for _, chosen := range []bool{o.Offsets, o.Members, o.State} {
		if chosen {
			n++
		}
	}
	if n > 1 {
		return errors.New("--offsets, --members and --state exclude each other")
	}
	return o.GroupSelection.check()
}

// groupDescription is the JSON form of a group.
type groupDescription struct {
	Group       string           `json:"group"`
	Type        string           `json:"type"`
	State       string           `json:"state"`
	Assignor    string           `json:"assignor"`
	Coordinator groupCoordinator `json:"coordinator"`
	// The epochs are those of a consumer group; absent for a classic one.
	Epoch       *int32             `json:"groupEpoch,omitempty"`
	TargetEpoch *int32             `json:"targetAssignmentEpoch,omitempty"`
	Members     []groupMember      `json:"members"`
	Offsets     []groupPartitionAt `json:"offsets,omitzero"` // where they were asked for
}

type groupCoordinator struct {
	ID   int32  `json:"id"`
	Host string `json:"host"`
	Port int32  `json:"port"`
}

func (c groupCoordinator) String() string { return fmt.Sprintf("%s:%d  (%d)", c.Host, c.Port, c.ID) }

// groupMember is the JSON form of a member.
type groupMember struct {
	ConsumerID string           `json:"consumerId"`
	InstanceID string           `json:"groupInstanceId,omitempty"`
	Host       string           `json:"host"`
	ClientID   string           `json:"clientId"`
	Assignment []topicPartition `json:"assignment"`
	// Epoch, Target and Upgraded are those of a consumer group.
	Epoch    *int32           `json:"memberEpoch,omitempty"`
	Target   []topicPartition `json:"targetAssignment,omitzero"`
	Upgraded *bool            `json:"upgraded,omitempty"`
}

// groupPartitionAt is the JSON form of a partition's committed offset and lag. Absent: not known.
type groupPartitionAt struct {
	topicPartition
	LeaderEpoch  *int32 `json:"leaderEpoch,omitempty"`
	Offset       *int64 `json:"currentOffset,omitempty"`
	LogEndOffset *int64 `json:"logEndOffset,omitempty"`
	Lag          *int64 `json:"lag,omitempty"`
	ConsumerID   string `json:"consumerId,omitempty"`
	Host         string `json:"host,omitempty"`
	ClientID     string `json:"clientId,omitempty"`
}

// DescribeGroups prints groups as Kafka's tool does.
func DescribeGroups(ctx context.Context, conn Connection, o DescribeGroupsOptions, out Output) error {
	if err := o.check(); err != nil {
		return UsageError{err}
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		names, err := o.find(ctx, cl)
		if err != nil {
			return err
		}
		groups, err := describeGroups(ctx, cl, names)
		if err != nil {
			return err
		}
		if !o.Members && !o.State {
			if err := addOffsets(ctx, cl, groups); err != nil {
				return err
			}
		}
		if out.JSON {
			return out.writeJSON(groups)
		}
		return o.print(groups, out)
	})
}

// describeGroups asks for consumer groups first, where the brokers know of those, and for classic ones then.
func describeGroups(ctx context.Context, cl *kgo.Client, names []string) ([]*groupDescription, error) {
	if len(names) == 0 {
		return []*groupDescription{}, nil
	}
	found := map[string]*groupDescription{}
	known, err := supports(ctx, cl, int16(kmsg.ConsumerGroupDescribe))
	if err != nil {
		return nil, err
	}
	rest := names
	if known {
		if rest, err = describeConsumerGroups(ctx, cl, names, found); err != nil {
			return nil, err
		}
	}
	if err := describeClassicGroups(ctx, cl, rest, found); err != nil {
		return nil, err
	}
	coordinators := kadm.NewClient(cl).FindGroupCoordinators(ctx, names...)
	groups := make([]*groupDescription, 0, len(names))
	for _, name := range names {
		c := coordinators[name]
		if c.Err != nil {
			return nil, fmt.Errorf("asking for the coordinator of group '%s': %w", name, c.Err)
		}
		g := found[name]
		g.Coordinator = groupCoordinator{c.NodeID, c.Host, c.Port}
		groups = append(groups, g)
	}
	return groups, nil
}

// describeConsumerGroups fills found, and returns the groups that are of another type.
func describeConsumerGroups(ctx context.Context, cl *kgo.Client, names []string, found map[string]*groupDescription) (rest []string, err error) {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = names
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	for i := range resp.Groups {
		g := &resp.Groups[i]
		err := brokerError(g.ErrorCode, g.ErrorMessage)
		switch {
		case errors.Is(err, kerr.GroupIDNotFound):
			rest = append(rest, g.Group)
			continue
		case err != nil:
			return nil, fmt.Errorf("group '%s': %w", g.Group, err)
		}
		d := &groupDescription{Group: g.Group, Type: "Consumer", State: g.State, Assignor: g.AssignorName, Epoch: &g.Epoch, TargetEpoch: &g.AssignmentEpoch, Members: []groupMember{}}
		for j := range g.Members {
			m := &g.Members[j]
			upgraded := m.MemberType == 1
			member := groupMember{
				ConsumerID: m.MemberID, InstanceID: deref(m.InstanceID), Host: m.ClientHost, ClientID: m.ClientID, Epoch: &m.MemberEpoch,
				Assignment: assignedTopics(m.Assignment), Target: assignedTopics(m.TargetAssignment),
			}
			if m.MemberType >= 0 {
				member.Upgraded = &upgraded
			}
			d.Members = append(d.Members, member)
		}
		found[g.Group] = d
	}
	return rest, nil
}

func assignedTopics(a kmsg.Assignment) []topicPartition {
	list := []topicPartition{}
	for _, t := range a.TopicPartitions {
		for _, p := range t.Partitions {
			list = append(list, topicPartition{t.Topic, p})
		}
	}
	slices.SortFunc(list, compareTopicPartitions)
	return list
}

func describeClassicGroups(ctx context.Context, cl *kgo.Client, names []string, found map[string]*groupDescription) error {
	if len(names) == 0 {
		return nil
	}
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = names
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, g := range resp.Groups {
		err := brokerError(g.ErrorCode, g.ErrorMessage)
		switch {
		case errors.Is(err, kerr.GroupIDNotFound) || err == nil && g.State == "Dead":
			return fmt.Errorf("consumer group '%s' %w", g.Group, errNoGroup)
		case err != nil:
			return fmt.Errorf("group '%s': %w", g.Group, err)
		}
		d := &groupDescription{Group: g.Group, Type: "Classic", State: g.State, Assignor: g.Protocol, Members: []groupMember{}}
		for _, m := range g.Members {
			d.Members = append(d.Members, groupMember{
				ConsumerID: m.MemberID, InstanceID: deref(m.InstanceID), Host: m.ClientHost, ClientID: m.ClientID,
				Assignment: consumerAssignment(g.ProtocolType, m.MemberAssignment),
			})
		}
		found[g.Group] = d
	}
	return nil
}

// consumerAssignment reads an assignment of the consumers' protocol; that of any other, or a bad one, is empty.
func consumerAssignment(protocolType string, assignment []byte) []topicPartition {
	list := []topicPartition{}
	var a kmsg.ConsumerMemberAssignment
	if protocolType != "consumer" || len(assignment) == 0 || a.ReadFrom(assignment) != nil {
		return list
	}
	for _, t := range a.Topics {
		for _, p := range t.Partitions {
			list = append(list, topicPartition{t.Topic, p})
		}
	}
	slices.SortFunc(list, compareTopicPartitions)
	return list
}

// addOffsets fills in what the groups have committed, and how far that is from the ends of the logs.
func addOffsets(ctx context.Context, cl *kgo.Client, groups []*groupDescription) error {
	if len(groups) == 0 {
		return nil
	}
	adm := kadm.NewClient(cl)
	var names []string
	for _, g := range groups {
		names = append(names, g.Group)
	}
	fetched := adm.FetchManyOffsets(ctx, names...)
	topics := kadm.TopicsSet{}
	for _, g := range groups {
		f := fetched[g.Group]
		if f.Err != nil {
			return fmt.Errorf("offsets of group '%s': %w", g.Group, f.Err)
		}
		g.Offsets = g.partitions(f.Fetched)
		for _, p := range g.Offsets {
			topics.Add(p.Topic)
		}
	}
	if len(topics) == 0 {
		return nil
	}
	ends, err := adm.ListEndOffsets(ctx, topics.Topics()...)
	if err != nil {
		return fmt.Errorf("asking for the ends of the logs: %w", err)
	}
	for _, g := range groups {
		for i := range g.Offsets {
			p := &g.Offsets[i]
			if end, ok := ends.Lookup(p.Topic, p.Partition); ok && end.Err == nil {
				p.LogEndOffset = &end.Offset
				if p.Offset != nil {
					lag := end.Offset - *p.Offset
					p.Lag = &lag
				}
			}
		}
	}
	return nil
}

// partitions lists the partitions of the members, those with most first, and then what nobody reads.
func (g *groupDescription) partitions(fetched kadm.OffsetResponses) []groupPartitionAt {
	list := []groupPartitionAt{}
	at := func(tp topicPartition) groupPartitionAt {
		p := groupPartitionAt{topicPartition: tp}
		if o, ok := fetched.Lookup(tp.Topic, tp.Partition); ok && o.Err == nil && o.At >= 0 {
			p.Offset = &o.At
			if o.LeaderEpoch >= 0 {
				p.LeaderEpoch = &o.LeaderEpoch
			}
		}
		return p
	}
	members := slices.Clone(g.Members)
	slices.SortStableFunc(members, func(a, b groupMember) int { return len(b.Assignment) - len(a.Assignment) })
	read := map[topicPartition]bool{}
	for _, m := range members {
		for _, tp := range m.Assignment {
			p := at(tp)
			p.ConsumerID, p.Host, p.ClientID = m.ConsumerID, m.Host, m.ClientID
			list, read[tp] = append(list, p), true
		}
	}
	var rest []groupPartitionAt
	for topic, parts := range fetched {
		for partition := range parts {
			if tp := (topicPartition{topic, partition}); !read[tp] {
				rest = append(rest, at(tp))
			}
		}
	}
	slices.SortFunc(rest, func(a, b groupPartitionAt) int { return compareTopicPartitions(a.topicPartition, b.topicPartition) })
	return append(list, rest...)
}

// assignmentText is Kafka's form of an assignment: t:0,1;u:3.
func assignmentText(list []topicPartition) string {
	if len(list) == 0 {
		return missing
	}
	topics, partitions := byTopic(list)
	var parts []string
	for _, t := range topics {
		parts = append(parts, t+":"+joinIDs(partitions[t], missing))
	}
	return strings.Join(parts, ";")
}
