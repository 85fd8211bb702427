package assignor

import (
	"iter"
	"maps"
	"slices"

	"cairn/internal/ids"
)

// inOrder walks the topics in the order of their ids.
func inOrder(p Partitions) iter.Seq2[ids.UUID, []int32] {
	return func(yield func(ids.UUID, []int32) bool) {
		keys := slices.SortedFunc(maps.Keys(p), func(a, b ids.UUID) int { return slices.Compare(a[:], b[:]) })
		for _, id := range keys {
			if !yield(id, p[id]) {
				return
			}
		}
	}
}

// byChoice is the places of the topics, those with the fewest subscribers first.
func (p *plan) byChoice() []int {
	order := make([]int, len(p.topics))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(p.topics[a].subscribers) - len(p.topics[b].subscribers) })
	return order
}
