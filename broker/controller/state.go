package controller

import (
	"fmt"
	"maps"

	"cairn/broker/internal/rules"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Apply is the controller's transition function: the image after the command at that index of the metadata log, and the
// command's result. It is deterministic and does not change img. A command that is refused changes nothing but Index.
func Apply(img *Image, index uint64, p Proposal) (*Image, Result) {
	return ApplyWithout(0, img, index, p)
}

// ApplyWithout is Apply without some of its rules, for tests.
func ApplyWithout(off rules.Off, img *Image, index uint64, p Proposal) (*Image, Result) {
	if index <= img.Index {
		panic(fmt.Sprintf("BUG: metadata entry %d applied after %d", index, img.Index))
	}
	e := newEdit(img, index)
	e.off = off
	if _, claim := p.Command.(Claim); !claim && p.Term != img.ControllerTerm {
		return e.img, refuse(kerr.NotController, "proposed in term %d, the active controller's is %d", p.Term, img.ControllerTerm)
	}
	res := e.apply(p)
	return e.img, res
}

func (e *edit) apply(p Proposal) Result {
	switch c := p.Command.(type) {
	case Claim:
		return e.claim(p.Term, c)
	case RegisterBroker:
		return e.registerBroker(c)
	case ChangeBrokers:
		return eachItem(c.Changes, e.changeBroker)
	case CreateTopics:
		return eachItem(c.Topics, e.createTopic)
	case DeleteTopics:
		return eachItem(c.Topics, e.deleteTopic)
	case CreatePartitions:
		return eachItem(c.Topics, e.createPartitions)
	case AlterConfigs:
		return eachItem(c.Resources, e.alterConfigs)
	case AllocateProducerIDs:
		return e.allocateProducerIDs(c)
	case RegisterLeaders:
		return e.registerLeaders(c)
	case UpdateFeatures:
		return e.updateFeatures(c)
	default:
		return e.applyReplication(c)
	}
}

func (e *edit) claim(term ids.Term, c Claim) Result {
	img := e.img
	if term <= img.ControllerTerm {
		return refuse(kerr.NotController, "claimed for term %d, the active controller's is %d", term, img.ControllerTerm)
	}
	img.Controller, img.ControllerTerm = c.Node, term
	if img.ClusterID == "" {
		img.ClusterID = c.ClusterID
	}
	return Result{ClusterID: img.ClusterID}
}

func (e *edit) allocateProducerIDs(c AllocateProducerIDs) Result {
	if bad := e.img.checkEpoch(c.Broker, c.Epoch); bad.Code != 0 {
		return Result{Code: bad.Code, Message: bad.Message}
	}
	if c.Count <= 0 {
		return refuse(kerr.InvalidRequest, "a block of %d producer ids", c.Count)
	}
	start := e.img.NextProducer
	e.img.NextProducer += int64(c.Count)
	return Result{ProducerID: start}
}

// checkEpoch refuses what comes from a broker that is not registered, or from an earlier registration of it.
func (img *Image) checkEpoch(node ids.NodeID, epoch int64) ItemResult {
	b := img.Brokers[node]
	switch {
	case b == nil:
		return refuseItem(kerr.BrokerIDNotRegistered, "broker %d is not registered", node)
	case b.Epoch != epoch:
		return refuseItem(kerr.StaleBrokerEpoch, "broker %d has epoch %d, not %d", node, b.Epoch, epoch)
	}
	return ItemResult{}
}

func eachItem[T any](items []T, apply func(T) ItemResult) Result {
	res := Result{Items: make([]ItemResult, len(items))}
	for i, it := range items {
		res.Items[i] = apply(it)
	}
	return res
}

func refuse(code *kerr.Error, format string, args ...any) Result {
	return Result{Code: code.Code, Message: fmt.Sprintf(format, args...)}
}

func refuseItem(code *kerr.Error, format string, args ...any) ItemResult {
	return ItemResult{Code: code.Code, Message: fmt.Sprintf(format, args...)}
}

// edit is the image under construction: a copy whose maps are still the old image's until the first write to each.
type edit struct {
	img *Image
	off rules.Off

	brokersOwned, topicsOwned, configsOwned, partitionsOwned bool
	// topics that this edit made or copied already; their Partitions slice is its own too.
	topicOwned map[ids.UUID]bool
}

func newEdit(img *Image, index uint64) *edit {
	c := *img
	c.Index = index
	return &edit{img: &c, topicOwned: map[ids.UUID]bool{}}
}

func (e *edit) setBroker(b *Broker) {
	if !e.brokersOwned {
		e.img.Brokers, e.brokersOwned = maps.Clone(e.img.Brokers), true
	}
	e.img.Brokers[b.ID] = b
}

func (e *edit) setTopic(t *Topic) {
	e.ownTopics()
	e.img.Topics[t.Name], e.img.TopicsByID[t.ID] = t, t
	e.topicOwned[t.ID] = true
}

func (e *edit) dropTopic(t *Topic) {
	e.ownTopics()
	delete(e.img.Topics, t.Name)
	delete(e.img.TopicsByID, t.ID)
}

func (e *edit) ownTopics() {
	if !e.topicsOwned {
		e.img.Topics, e.img.TopicsByID = maps.Clone(e.img.Topics), maps.Clone(e.img.TopicsByID)
		e.topicsOwned = true
	}
}

// editTopic returns a copy of the topic that this edit may write to, but for the partitions, which it may replace.
func (e *edit) editTopic(id ids.UUID) *Topic {
	t := e.img.TopicsByID[id]
	if e.topicOwned[id] {
		return t
	}
	c := *t
	c.Partitions = append([]*Partition(nil), t.Partitions...)
	e.setTopic(&c)
	return &c
}

// editPartition returns a copy of the partition that this edit may write to, with the next partition epoch.
func (e *edit) editPartition(topic ids.UUID, index int32) *Partition {
	t := e.editTopic(topic)
	c := *t.Partitions[index]
	c.PartitionEpoch++
	t.Partitions[index] = &c
	return &c
}

func (e *edit) ownPartitions() map[ids.PartitionID]partitionKey {
	if !e.partitionsOwned {
		e.img.partitions, e.partitionsOwned = maps.Clone(e.img.partitions), true
	}
	return e.img.partitions
}

func (e *edit) setConfigs(r Resource, configs map[string]string) {
	if !e.configsOwned {
		e.img.Configs, e.configsOwned = maps.Clone(e.img.Configs), true
	}
	if len(configs) == 0 {
		delete(e.img.Configs, r)
		return
	}
	e.img.Configs[r] = configs
}
