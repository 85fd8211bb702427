package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// GenerateOptions says which topics to spread over which brokers.
type GenerateOptions struct {
	File             string // Kafka's {"topics":[{"topic":"t"}],"version":1}
	Brokers          []int32
	DisableRackAware bool

	start func(n int) int // the first broker of a topic; nil: at random
}

// rackedBroker is a broker with its rack, empty for none.
type rackedBroker struct {
	id   int32
	rack string
}

func readTopicsFile(path string) ([]string, error) {
	const want = `want {"topics":[{"topic":"t"}],"version":1}`
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Version int
		Topics  []struct{ Topic string }
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w; %s", path, err, want)
	}
	if file.Version > 1 || len(file.Topics) == 0 {
		return nil, fmt.Errorf("%s: version %d with %d topics; %s", path, file.Version, len(file.Topics), want)
	}
	var topics []string
	for i, t := range file.Topics {
		switch {
		case t.Topic == "":
			return nil, fmt.Errorf("%s: topic %d has no name; %s", path, i, want)
		case slices.Contains(topics, t.Topic):
			return nil, fmt.Errorf("%s: topic %s is there twice", path, t.Topic)
		}
		topics = append(topics, t.Topic)
	}
	return topics, nil
}

// GenerateReassignment prints the present assignment of topics, and one that spreads them over the brokers. Nothing moves.
func GenerateReassignment(ctx context.Context, conn Connection, o GenerateOptions, out Output) error {
	topics, err := readTopicsFile(o.File)
	if err != nil {
		return err
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		brokers, parts, err := o.present(ctx, cl, topics)
		if err != nil {
			return err
		}
		current, err := currentAssignment(ctx, cl, parts)
		if err != nil {
			return err
		}
		proposed, err := o.propose(current, brokers)
		if err != nil {
			return err
		}
		if out.JSON {
			return out.writeJSON(map[string]any{"current": current, "proposed": proposed})
		}
		before, err := json.Marshal(current)
		if err != nil {
			return err
		}
		after, err := json.Marshal(proposed)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out.Out, "Current partition replica assignment\n%s\n\nProposed partition reassignment configuration\n%s\n", before, after)
		return err
	})
}

// present finds the brokers to use with their racks, in an order that takes racks in turn, and the partitions of the topics.
func (o GenerateOptions) present(ctx context.Context, cl *kgo.Client, topics []string) ([]rackedBroker, []topicPartition, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, nil, err
	}
	var brokers []rackedBroker
	for _, id := range o.Brokers {
		at := slices.IndexFunc(resp.Brokers, func(b kmsg.MetadataResponseBroker) bool { return b.NodeID == id })
		if at < 0 {
			return nil, nil, fmt.Errorf("broker %d of --broker-list is not there, or fenced", id)
		}
		brokers = append(brokers, rackedBroker{id, deref(resp.Brokers[at].Rack)})
	}
	if brokers, err = o.inTurn(brokers); err != nil {
		return nil, nil, err
	}
	var parts []topicPartition
	for _, t := range resp.Topics {
		if err := brokerError(t.ErrorCode, nil); err != nil {
			return nil, nil, fmt.Errorf("topic '%s': %w; `cairn topics list` shows what there is", deref(t.Topic), err)
		}
		for _, p := range t.Partitions {
			parts = append(parts, topicPartition{deref(t.Topic), p.Partition})
		}
	}
	slices.SortFunc(parts, compareTopicPartitions)
	return brokers, parts, nil
}

// inTurn orders brokers so that neighbours are of different racks where that can be.
func (o GenerateOptions) inTurn(brokers []rackedBroker) ([]rackedBroker, error) {
	racked := 0
	byRack := map[string]int{}
	place := map[int32]int{} // of a broker in its rack
	slices.SortFunc(brokers, func(a, b rackedBroker) int { return cmp.Compare(a.id, b.id) })
	for _, b := range brokers {
		if b.rack != "" {
			racked++
		}
		place[b.id] = byRack[b.rack]
		byRack[b.rack]++
	}
	switch {
	case o.DisableRackAware || racked == 0:
		return brokers, nil
	case racked < len(brokers):
		return nil, errors.New("not all brokers have a rack; --disable-rack-aware leaves racks out of account")
	}
	slices.SortFunc(brokers, func(a, b rackedBroker) int {
		return cmp.Or(place[a.id]-place[b.id], cmp.Compare(a.rack, b.rack), cmp.Compare(a.id, b.id))
	})
	return brokers, nil
}

// propose gives each partition as many replicas as it has. Leaders go round the brokers; a partition's followers are those behind its leader,
// at a distance that grows with each round, so that they do not all sit on the same neighbour.
func (o GenerateOptions) propose(current reassignmentFile, brokers []rackedBroker) (reassignmentFile, error) {
	start := o.start
	if start == nil {
		start = rand.IntN
	}
	file := reassignmentFile{Version: 1}
	n, first := len(brokers), 0
	for i, p := range current.Partitions {
		if len(p.Replicas) > n {
			return file, fmt.Errorf("%s has %d replicas, and --broker-list names %d brokers only", p.topicPartition, len(p.Replicas), n)
		}
		if i == 0 || p.Topic != current.Partitions[i-1].Topic {
			first = start(n)
		}
		place := first + int(p.Partition)
		r := reassignment{topicPartition: p.topicPartition, Replicas: []int32{brokers[place%n].id}, LogDirs: []string{"any"}}
		for j := 1; j < len(p.Replicas); j++ {
			next := 1 + (int(p.Partition)/n+j-1)%max(n-1, 1)
			r.Replicas, r.LogDirs = append(r.Replicas, brokers[(place+next)%n].id), append(r.LogDirs, "any")
		}
		file.Partitions = append(file.Partitions, r)
	}
	return file, nil
}
