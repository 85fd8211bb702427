package broker

import (
	"cmp"
	"slices"
	"time"

	"cairn/wire/private"
)

// handleDescribeStore tells how the store here and the disk under it are.
func handleDescribeStore(b *Broker, r *request) {
	s, scrub := b.engine.Space(), b.scrubber.Load().snapshot()
	r.reply(&private.StoreResponse{Body: private.StoreAnswer{
		Level: int32(s.Level), Free: s.Free, Total: s.Total, MinFree: s.MinFree, Ballast: s.Ballast, Damaged: b.damaged(),
		ScrubBeganMs: millisOf(scrub.began), ScrubEndedMs: millisOf(scrub.ended), Scrubs: scrub.complete, ScrubBytes: scrub.bytes,
	}})
}

// millisOf is a time in ms since 1970, 0 for none.
func millisOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
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
