package broker

import (
	"context"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group"
	"cairn/internal/ids"
)

// watchDeletedTopics has the groups that this broker coordinates forget what they have committed of topics that are
// deleted, until ctx ends.
func (b *Broker) watchDeletedTopics(ctx context.Context) {
	changed, stop := b.images.Watch()
	defer stop()
	known := b.images.Image().TopicsByID
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		current := b.images.Image().TopicsByID
		gone := map[string]ids.UUID{}
		for id, t := range known {
			if current[id] == nil {
				gone[t.Name] = id
			}
		}
		known = current
		for i := range b.groups.Partitions() {
			if len(gone) > 0 {
				b.forgetTopics(i, gone)
			}
		}
	}
}

// forgetTopics deletes the offsets of topics in one partition of __consumer_offsets, in as many operations as it takes.
// Where this broker does not coordinate it, another one does the same.
func (b *Broker) forgetTopics(partition int32, gone map[string]ids.UUID) {
	b.groups.DoPartition(partition, func(m *group.Machine, _ time.Time, fx *coordinator.Effects) {
		more := m.RemoveTopics(func(topic string, id [16]byte) bool {
			deleted, ok := gone[topic]
			return ok && (id == [16]byte{} || id == deleted)
		}, fx)
		fx.Then(func(err error) {
			if more && err == nil {
				b.forgetTopics(partition, gone)
			}
		})
	}, func(error) {})
}
