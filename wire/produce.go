package wire

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	errTruncated  = errors.New("truncated or impossible length")
	errEmptyTopic = errors.New("topic without name or partitions")
)

// parseProduce reads a produce request of version 3 to 13. It differs from kmsg's own reader in what a hostile frame
// can make it allocate: slices grow with the elements that were really there, a topic must have a name and a
// partition, and tagged fields are skipped. Records alias body.
func parseProduce(p *kmsg.ProduceRequest, body []byte) error {
	flexible, byID := p.Version >= 9, p.Version >= 13
	r := reader{src: body}
	if n := r.length(flexible, 2); n >= 0 && !r.bad {
		id := string(r.span(n))
		p.TransactionID = &id
	}
	p.Acks = r.int16()
	p.TimeoutMillis = r.int32()
	topics := r.length(flexible, 4)
	for ; topics > 0 && !r.bad; topics-- {
		var t kmsg.ProduceRequestTopic
		if byID {
			copy(t.TopicID[:], r.span(len(t.TopicID)))
		} else {
			t.Topic = string(r.span(r.length(flexible, 2)))
		}
		t.Partitions = parseProducePartitions(&r, flexible)
		if flexible {
			r.skipTags()
		}
		if r.bad {
			break
		}
		if len(t.Partitions) == 0 || !byID && t.Topic == "" {
			return errEmptyTopic
		}
		p.Topics = append(p.Topics, t)
	}
	if flexible {
		r.skipTags()
	}
	if r.bad {
		return errTruncated
	}
	return nil
}

// partitionMinBytes is the least that a partition takes on the wire: its number and a null record set.
const partitionMinBytes = 5

func parseProducePartitions(r *reader, flexible bool) []kmsg.ProduceRequestTopicPartition {
	n := r.length(flexible, 4)
	if n <= 0 || r.bad {
		return nil
	}
	if n > len(r.src)/partitionMinBytes {
		r.bad = true
		return nil
	}
	ps := make([]kmsg.ProduceRequestTopicPartition, n)
	for i := range ps {
		ps[i].Partition = r.int32()
		if size := r.length(flexible, 4); size >= 0 {
			ps[i].Records = r.span(size)
		}
		if flexible {
			r.skipTags()
		}
		if r.bad {
			return nil
		}
	}
	return ps
}
