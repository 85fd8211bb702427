package assignor

import "cmp"

// ranges gives each subscriber of a topic one range of its partitions, in the order of the members' instance ids and
// then of their ids. Topics with as many partitions and the same subscribers are so divided alike, and who joins them by
// key finds both sides with the same member. What a member had so far does not count, as in Kafka.
func ranges(g Group) map[string]Partitions {
	p := newPlan(g, byInstance)
	for i := range p.topics {
		t := &p.topics[i]
		partitions, members := t.next-t.first, int32(len(t.subscribers))
		each, extras := partitions/members, partitions%members
		n := t.first
		for place, m := range t.subscribers {
			size := each
			if int32(place) < extras {
				size++
			}
			for range size {
				p.give(n, m)
				n++
			}
		}
	}
	return p.result()
}

// byInstance puts static members first, by instance id, and then the dynamic ones.
func byInstance(a, b Member) int {
	switch {
	case a.InstanceID != "" && b.InstanceID != "":
		return cmp.Or(cmp.Compare(a.InstanceID, b.InstanceID), byID(a, b))
	case a.InstanceID != "":
		return -1
	case b.InstanceID != "":
		return 1
	}
	return byID(a, b)
}
