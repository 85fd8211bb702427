package checker

// checkGroupOffsets: what an observer is told of a group's offset is not below what anybody was told before it asked. Where an unclean
// election was held a consumer is sent back to what is left, and commits that.
func (s *state) checkGroupOffsets() {
	told, floor := map[int32]int64{}, map[string]map[int32]int64{}
	for _, e := range s.history {
		switch e.Kind {
		case GroupStored:
			told[e.Partition] = max(told[e.Partition], e.Offset)
			s.report.GroupCommits++
		case OffsetsAsked:
			floor[e.Client] = map[int32]int64{}
			for p, offset := range told {
				floor[e.Client][p] = offset
			}
		case OffsetFetched:
			if before := floor[e.Client][e.Partition]; max(e.Offset, 0) < before && !s.unclean[e.Partition] {
				s.find(OffsetWentBack, e.Partition, "%s was told that offset %d is committed (-1: none), and offset %d was committed before it asked", e.Client, e.Offset, before)
			}
			told[e.Partition] = max(told[e.Partition], e.Offset)
		}
	}
}

// checkGroupReads: what lies below a committed offset, some member got before; and what a member got stays, or is reported lost.
func (s *state) checkGroupReads() {
	got, committed := map[place]bool{}, map[int32]int64{}
	for _, e := range s.history {
		switch e.Kind {
		case GroupPolled:
			for _, entry := range e.Entries {
				at := place{e.Partition, entry.Epoch, entry.Offset}
				got[at] = true
				s.checkGot(e.Client, at, entry)
			}
		case GroupStored, OffsetFetched:
			committed[e.Partition] = max(committed[e.Partition], e.Offset)
		}
	}
	for p, to := range committed {
		for _, e := range s.final.Log[p] {
			if e.Offset < to && !s.unclean[p] && !got[place{p, e.Epoch, e.Offset}] {
				s.find(Unseen, p, "the group has committed offset %d, and no member ever got %+v", to, e)
				break
			}
		}
	}
}
