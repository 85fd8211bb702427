package records

import (
	"fmt"
	"maps"
	"slices"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kbin"
)

// decode reads a value of version 0 to its end.
func decode(what string, value []byte, read func(*kbin.Reader)) error {
	if err := checkVersion(what, value, consumerValueVersion); err != nil {
		return err
	}
	r := kbin.Reader{Src: value[2:]}
	read(&r)
	return finish(what, &r)
}

// finish refuses what was too short, or is longer than what was read.
func finish(what string, r *kbin.Reader) error {
	if err := r.Complete(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrMalformed, what, err)
	}
	if len(r.Src) > 0 {
		return fmt.Errorf("%w: %s: %d bytes too long", ErrMalformed, what, len(r.Src))
	}
	return nil
}

// appendTag ends a struct that has one tagged field, which is left out when it has its default.
func appendTag(dst []byte, present bool, tag uint32, field []byte) []byte {
	if !present {
		return kbin.AppendUvarint(dst, 0)
	}
	dst = kbin.AppendUvarint(dst, 1)
	dst = kbin.AppendUvarint(dst, tag)
	dst = kbin.AppendUvarint(dst, uint32(len(field)))
	return append(dst, field...)
}

// readTags reads the tagged fields that end a struct. Those that known leaves unread, or all if it is nil, are skipped.
func readTags(r *kbin.Reader, known func(tag uint32, field *kbin.Reader)) {
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		tag, size := r.Uvarint(), r.Uvarint()
		if uint64(size) > uint64(len(r.Src)) {
			r.Span(len(r.Src) + 1) // marks r as too short
			return
		}
		field := kbin.Reader{Src: r.Span(int(size))}
		if known == nil {
			continue
		}
		if known(tag, &field); !field.Ok() {
			r.Span(len(r.Src) + 1)
			return
		}
	}
}

func appendStrings(dst []byte, list []string) []byte {
	dst = kbin.AppendCompactArrayLen(dst, len(list))
	for _, s := range list {
		dst = kbin.AppendCompactString(dst, s)
	}
	return dst
}

func readStrings(r *kbin.Reader) (list []string) {
	for n := r.CompactArrayLen(); n > 0 && r.Ok(); n-- {
		list = append(list, r.CompactString())
	}
	return list
}

func appendInts(dst []byte, list []int32) []byte {
	dst = kbin.AppendCompactArrayLen(dst, len(list))
	for _, n := range list {
		dst = kbin.AppendInt32(dst, n)
	}
	return dst
}

// readInts returns an empty list for none; nil stands for an array that is null.
func readInts(r *kbin.Reader) []int32 {
	n := r.CompactArrayLen()
	if n < 0 {
		return nil
	}
	list := []int32{}
	for ; n > 0 && r.Ok(); n-- {
		list = append(list, r.Int32())
	}
	return list
}

// appendEpochs writes topics, their partitions and, in a tagged field, the epochs at which those were assigned.
func appendEpochs(dst []byte, topics map[ids.UUID]map[int32]int32) []byte {
	dst = kbin.AppendCompactArrayLen(dst, len(topics))
	for _, id := range sortedIDs(topics) {
		partitions := slices.Sorted(maps.Keys(topics[id]))
		epochs := make([]int32, len(partitions))
		for i, p := range partitions {
			epochs[i] = topics[id][p]
		}
		dst = kbin.AppendUuid(dst, id)
		dst = appendInts(dst, partitions)
		dst = appendTag(dst, true, tagAssignmentEpochs, appendInts(nil, epochs))
	}
	return dst
}

// readEpochs reads what appendEpochs writes; other is the epoch of partitions that come without.
func readEpochs(r *kbin.Reader, other int32) map[ids.UUID]map[int32]int32 {
	topics := map[ids.UUID]map[int32]int32{}
	for n := r.CompactArrayLen(); n > 0 && r.Ok(); n-- {
		id := ids.UUID(r.Uuid())
		partitions := readInts(r)
		var epochs []int32
		readTags(r, func(tag uint32, r *kbin.Reader) {
			if tag == tagAssignmentEpochs {
				epochs = readInts(r)
			}
		})
		of := make(map[int32]int32, len(partitions))
		for i, p := range partitions {
			of[p] = other
			if len(epochs) == len(partitions) {
				of[p] = epochs[i]
			}
		}
		topics[id] = of
	}
	return topics
}

// sortedIDs is the topics in the order of their ids.
func sortedIDs[V any](topics map[ids.UUID]V) []ids.UUID {
	return slices.SortedFunc(maps.Keys(topics), func(a, b ids.UUID) int { return slices.Compare(a[:], b[:]) })
}
