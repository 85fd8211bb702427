package tools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/internal/ids"
)

// CreateTopicOptions describes a topic to create.
type CreateTopicOptions struct {
	Topic             string
	Partitions        int32  // -1: the brokers' default
	ReplicationFactor int16  // -1: the brokers' default
	ReplicaAssignment string // "1:2,2:3": the brokers of partition 0, 1, ...; excludes the two above
	Configs           []string
	IfNotExists       bool
}

// createdTopic is the JSON form of a created topic.
type createdTopic struct {
	Topic             string `json:"topic"`
	TopicID           string `json:"topicId,omitempty"`
	Partitions        int32  `json:"partitions"`
	ReplicationFactor int16  `json:"replicationFactor"`
	Created           bool   `json:"created"`
}

// CreateTopic creates one topic and prints so. With IfNotExists an existing topic is left as it is.
func CreateTopic(ctx context.Context, conn Connection, o CreateTopicOptions, out Output) error {
	req, err := o.request()
	if err != nil {
		return UsageError{err}
	}
	if strings.ContainsAny(o.Topic, "._") {
		out.warn("metric names treat '.' and '_' alike, so topics that differ only there share their metrics; keep to one of the two")
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		waited := out.noteAfter(slowAnswer, "still waiting for the controller to create topic '%s'; `cairn status` shows whether there is one", o.Topic)
		resp, err := req.RequestWith(ctx, cl)
		waited()
		if err != nil {
			return err
		}
		if len(resp.Topics) != 1 {
			return fmt.Errorf("the broker answered for %d topics instead of one", len(resp.Topics))
		}
		t := resp.Topics[0]
		result := createdTopic{o.Topic, topicIDText(t.TopicID), t.NumPartitions, t.ReplicationFactor, true}
		switch err := brokerError(t.ErrorCode, t.ErrorMessage); {
		case errors.Is(err, kerr.TopicAlreadyExists) && o.IfNotExists:
			result.Created = false
		case errors.Is(err, kerr.TopicAlreadyExists):
			return fmt.Errorf("topic '%s' already exists; --if-not-exists accepts that", o.Topic)
		case errors.Is(err, kerr.RequestTimedOut):
			return fmt.Errorf("topic '%s' is not known to be created, no controller has answered in time: %w; see `cairn status`, then "+
				"`cairn topics describe --topic %s`, since it may have been created all the same", o.Topic, err, o.Topic)
		case err != nil:
			return tooMany(err)
		}
		if out.JSON {
			return out.writeJSON(result)
		}
		if result.Created {
			_, err = fmt.Fprintf(out.Out, "Created topic %s.\n", o.Topic)
		}
		return err
	})
}

// tooMany adds to a broker's refusal of a number of partitions what can be done.
func tooMany(err error) error {
	if errors.Is(err, kerr.PolicyViolation) {
		return fmt.Errorf("%w; make fewer, and add to them with `cairn topics alter --partitions`", err)
	}
	return err
}

func (o CreateTopicOptions) request() (*kmsg.CreateTopicsRequest, error) {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = o.Topic, o.Partitions, o.ReplicationFactor
	if o.ReplicaAssignment != "" {
		if o.Partitions != -1 || o.ReplicationFactor != -1 {
			return nil, errors.New("--replica-assignment already gives the partitions and replicas: leave --partitions and --replication-factor out")
		}
		assignment, err := parseAssignment(o.ReplicaAssignment)
		if err != nil {
			return nil, err
		}
		for i, replicas := range assignment {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = int32(i), replicas
			t.ReplicaAssignment = append(t.ReplicaAssignment, a)
		}
	}
	configs := map[string]string{}
	if err := splitPairs(configs, o.Configs, "--config"); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = name, kmsg.StringPtr(configs[name])
		t.Configs = append(t.Configs, c)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(adminTimeout.Milliseconds() / 2)
	req.Topics = append(req.Topics, t)
	return req, nil
}

// parseAssignment reads Kafka's manual assignment: partitions separated by commas, each the broker ids separated by colons.
func parseAssignment(s string) ([][]int32, error) {
	var all [][]int32
	for i, part := range strings.Split(s, ",") {
		var replicas []int32
		for _, id := range strings.Split(part, ":") {
			n, err := strconv.ParseInt(strings.TrimSpace(id), 10, 32)
			if err != nil || n < 0 {
				return nil, fmt.Errorf("--replica-assignment %q, partition %d: %q is no broker id; want for example 1:2,2:3", s, i, id)
			}
			if slices.Contains(replicas, int32(n)) {
				return nil, fmt.Errorf("--replica-assignment %q, partition %d: broker %d is named twice", s, i, n)
			}
			replicas = append(replicas, int32(n))
		}
		if i > 0 && len(replicas) != len(all[0]) {
			return nil, fmt.Errorf("--replica-assignment %q, partition %d: %d replicas where partition 0 has %d", s, i, len(replicas), len(all[0]))
		}
		all = append(all, replicas)
	}
	return all, nil
}

// TopicSelection picks topics.
type TopicSelection struct {
	Topic           string // names or regular expressions separated by commas, matched whole; empty: all
	TopicID         string // alternatively, one topic by its id
	ExcludeInternal bool
	IfExists        bool // a selection that matches nothing is no error
}

// ListTopics prints the names of the selected topics, sorted.
func ListTopics(ctx context.Context, conn Connection, sel TopicSelection, out Output) error {
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		sel.IfExists = true // an empty list is an answer
		topics, _, err := sel.find(ctx, cl)
		if err != nil {
			return err
		}
		type item struct {
			Topic      string `json:"topic"`
			TopicID    string `json:"topicId"`
			Partitions int    `json:"partitions"`
			Internal   bool   `json:"internal"`
		}
		items := []item{}
		for _, t := range topics {
			items = append(items, item{*t.Topic, topicIDText(t.TopicID), len(t.Partitions), t.IsInternal})
		}
		if out.JSON {
			return out.writeJSON(items)
		}
		for _, it := range items {
			if _, err := fmt.Fprintln(out.Out, it.Topic); err != nil {
				return err
			}
		}
		return nil
	})
}

// find returns the metadata of the selected topics, sorted by name, and the ids of the live brokers.
func (sel TopicSelection) find(ctx context.Context, cl *kgo.Client) ([]kmsg.MetadataResponseTopic, []int32, error) {
	match, err := sel.matcher()
	if err != nil {
		return nil, nil, err
	}
	req := kmsg.NewPtrMetadataRequest() // null topics: all of them
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, nil, err
	}
	var brokers []int32
	for _, b := range resp.Brokers {
		brokers = append(brokers, b.NodeID)
	}
	var found []kmsg.MetadataResponseTopic
	for _, t := range resp.Topics {
		if t.Topic == nil || (t.IsInternal && sel.ExcludeInternal) || !match(*t.Topic, t.TopicID) {
			continue
		}
		found = append(found, t)
	}
	slices.SortFunc(found, func(a, b kmsg.MetadataResponseTopic) int { return strings.Compare(*a.Topic, *b.Topic) })
	if len(found) == 0 && !sel.IfExists && (sel.Topic != "" || sel.TopicID != "") {
		return nil, nil, sel.missing()
	}
	return found, brokers, nil
}

// errNoTopic is wrapped by the error about a topic that is not there.
var errNoTopic = errors.New("does not exist")

func (sel TopicSelection) missing() error {
	if sel.TopicID != "" {
		return fmt.Errorf("no topic with id '%s'; `cairn topics describe` shows the ids", sel.TopicID)
	}
	return fmt.Errorf("topic '%s' %w; `cairn topics list` shows what does", sel.Topic, errNoTopic)
}

func (sel TopicSelection) matcher() (func(name string, id [16]byte) bool, error) {
	if sel.TopicID != "" {
		want, err := ids.ParseUUID(sel.TopicID)
		if err != nil {
			return nil, UsageError{fmt.Errorf("--topic-id: %w", err)}
		}
		return func(_ string, id [16]byte) bool { return id == want }, nil
	}
	if sel.Topic == "" {
		return func(string, [16]byte) bool { return true }, nil
	}
	re, err := regexp.Compile(`^(?:` + strings.ReplaceAll(sel.Topic, ",", "|") + `)$`)
	if err != nil {
		return nil, UsageError{fmt.Errorf("--topic %q: %w", sel.Topic, err)}
	}
	return func(name string, _ [16]byte) bool { return name == sel.Topic || re.MatchString(name) }, nil
}

// DeleteTopics deletes the selected topics. Like Kafka it prints nothing on success, unless JSON is wanted.
func DeleteTopics(ctx context.Context, conn Connection, sel TopicSelection, out Output) error {
	if sel.Topic == "" && sel.TopicID == "" {
		return UsageError{errors.New("say which topic with --topic or --topic-id")}
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		topics, _, err := sel.find(ctx, cl)
		if err != nil {
			return err
		}
		names := []string{}
		if len(topics) > 0 {
			req := kmsg.NewPtrDeleteTopicsRequest()
			req.TimeoutMillis = int32(adminTimeout.Milliseconds() / 2)
			for _, t := range topics {
				names = append(names, *t.Topic)
				rt := kmsg.NewDeleteTopicsRequestTopic()
				rt.Topic = t.Topic
				req.Topics, req.TopicNames = append(req.Topics, rt), append(req.TopicNames, *t.Topic)
			}
			resp, err := req.RequestWith(ctx, cl)
			if err != nil {
				return err
			}
			for _, t := range resp.Topics {
				if err := brokerError(t.ErrorCode, t.ErrorMessage); err != nil {
					return fmt.Errorf("deleting topic '%s': %w", deref(t.Topic), err)
				}
			}
		}
		if out.JSON {
			return out.writeJSON(map[string][]string{"deleted": names})
		}
		return nil
	})
}

// brokerError turns an error code and the broker's words about it into an error, nil for none.
func brokerError(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err != nil && message != nil && *message != "" {
		return answeredError{code: err, message: *message}
	}
	return err
}

// answeredError is a broker's error with the broker's own words in place of the code's general description.
type answeredError struct {
	code    error
	message string
}

func (e answeredError) Unwrap() error { return e.code }

func (e answeredError) Error() string {
	name, _, _ := strings.Cut(e.code.Error(), ":")
	return name + ": " + e.message
}

func topicIDText(id [16]byte) string {
	if id == [16]byte{} {
		return ""
	}
	return ids.UUID(id).String()
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
