package group

import (
	"cmp"
	"maps"
	"slices"

	"cairn/broker/group/records"
)

// topicPartition is a partition by name.
type topicPartition struct {
	topic     string
	partition int32
}

func compareTopicPartitions(a, b topicPartition) int {
	return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
}

// committed is a committed offset. order is its place among all that were replayed.
type committed struct {
	records.Offset
	order uint64
}

// offsets are what a group has committed.
type offsets struct {
	committed map[topicPartition]committed
	// open are the producers whose open transactions hold an offset of the partition.
	open map[topicPartition]map[int64]struct{}
}

func (o *offsets) empty() bool { return len(o.committed) == 0 && len(o.open) == 0 }

func (o *offsets) put(tp topicPartition, c committed) {
	if o.committed == nil {
		o.committed = map[topicPartition]committed{}
	}
	o.committed[tp] = c
}

// unstable reports whether a transaction may yet change the offset.
func (o *offsets) unstable(tp topicPartition) bool { return len(o.open[tp]) > 0 }

func (o *offsets) begin(tp topicPartition, producer int64) {
	if o.open == nil {
		o.open = map[topicPartition]map[int64]struct{}{}
	}
	if o.open[tp] == nil {
		o.open[tp] = map[int64]struct{}{}
	}
	o.open[tp][producer] = struct{}{}
}

func (o *offsets) end(tp topicPartition, producer int64) {
	if delete(o.open[tp], producer); len(o.open[tp]) == 0 {
		delete(o.open, tp)
	}
}

// sorted lists the partitions with a committed offset.
func (o *offsets) sorted() []topicPartition {
	return slices.SortedFunc(maps.Keys(o.committed), compareTopicPartitions)
}

// all lists the partitions with a committed or a pending offset.
func (o *offsets) all() []topicPartition {
	list := slices.AppendSeq(slices.Collect(maps.Keys(o.committed)), maps.Keys(o.open))
	slices.SortFunc(list, compareTopicPartitions)
	return slices.Compact(list)
}

// pendingKey is whose offset a transaction commits.
type pendingKey struct {
	group string
	topicPartition
}

// transaction is the offsets of one open transaction in this partition of __consumer_offsets.
type transaction struct {
	offsets map[pendingKey]committed
}

// tombstones are records that delete offsets.
func (g *group) tombstone(tp topicPartition) []byte {
	return records.OffsetKey{Group: g.id, Topic: tp.topic, Partition: tp.partition}.Encode()
}
