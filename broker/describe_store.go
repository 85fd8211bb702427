package broker

import (
	"cmp"
	"slices"

	"cairn/wire/private"
)

// handleDescribeStore tells how the store here and the disk under it are.
func handleDescribeStore(b *Broker, r *request) {
	s := b.engine.Space()
	r.reply(&private.StoreResponse{Body: private.StoreAnswer{
		Level: int32(s.Level), Free: s.Free, Total: s.Total, MinFree: s.MinFree, Ballast: s.Ballast, Damaged: b.damaged(),
	}})
}

// damaged are the replicas that wait to be repaired, in the order of topics and partitions.
func (b *Broker) damaged() []private.TopicPartitions {
	list, img := []private.TopicPartitions{}, b.images.Image()
	for _, id := range b.replicas.repairs.partitions() {
		t, index, ok := img.PartitionByID(id)
		if !ok {
			continue
		}
		at, found := slices.BinarySearchFunc(list, t.Name, func(p private.TopicPartitions, name string) int { return cmp.Compare(p.Topic, name) })
		if !found {
			list = slices.Insert(list, at, private.TopicPartitions{Topic: t.Name})
		}
		list[at].Partitions = append(list[at].Partitions, index)
	}
	for i := range list {
		slices.Sort(list[i].Partitions)
	}
	return list
}
