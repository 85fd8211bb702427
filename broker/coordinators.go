package broker

import (
	"crypto/rand"
	"fmt"
	"iter"
	"maps"

	"cairn/broker/controller"
	"cairn/broker/coordinator"
	"cairn/broker/group"
	"cairn/broker/txn"
	"cairn/internal/ids"

	"go.uber.org/zap"
)

// startCoordinators makes the coordinators of this broker. They serve once its partitions of their topics lead.
func (b *Broker) startCoordinators() error {
	v := valueReader{b.cfg.values}
	groups := b.cfg.Groups
	groups.Topics, groups.NewID, groups.GroupConfig = topicsView{b.images}, newMemberUUID, b.groupConfigs
	if err := groups.Validate(); err != nil {
		return fmt.Errorf("%w: %w", errConfig, err)
	}
	var err error
	b.groups, err = coordinator.New(coordinator.Config[*group.Machine]{
		New:        func(partition int32) *group.Machine { return group.New(groups, partition) },
		Partitions: func() int32 { return b.partitionsOf(offsetsTopic) }, CommitTimeout: v.millis("offsets.commit.timeout.ms"),
		Log: b.log.Named("groups").With(zap.String("topic", offsetsTopic)),
	})
	if err != nil {
		return err
	}
	b.txns, err = coordinator.New(coordinator.Config[*txn.Machine]{
		New: b.newTxnMachine, Partitions: func() int32 { return b.partitionsOf(transactionsTopic) },
		Log: b.log.Named("transactions").With(zap.String("topic", transactionsTopic)),
	})
	if err != nil {
		return err
	}
	b.coordinations = map[string]coordination{offsetsTopic: b.groups, transactionsTopic: b.txns}
	return nil
}

// stopCoordinators fails what waits for coordinators and ends them. The partitions are stopped before.
func (b *Broker) stopCoordinators() {
	for _, c := range b.coordinations {
		c.Close()
	}
}

// topicsView shows coordinators the topics of the newest metadata. It implements group.Topics.
type topicsView struct{ images *controller.Store }

func (v topicsView) Topic(name string) (id [16]byte, partitions int32, ok bool) {
	t := v.images.Image().Topics[name]
	if t == nil {
		return id, 0, false
	}
	return t.ID, int32(len(t.Partitions)), true
}

func (v topicsView) TopicByID(id [16]byte) (name string, partitions int32, ok bool) {
	t := v.images.Image().TopicsByID[ids.UUID(id)]
	if t == nil {
		return "", 0, false
	}
	return t.Name, int32(len(t.Partitions)), true
}

func (v topicsView) Names() iter.Seq[string] { return maps.Keys(v.images.Image().Topics) }

func (v topicsView) Version() int64 { return int64(v.images.Image().Index) }

// newMemberUUID makes the random part of a member id: a UUID in its usual text form.
func newMemberUUID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
