package txn

import (
	"maps"
	"regexp"
	"slices"
	"time"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Description is a transactional id as DescribeTransactions shows it: of a prepared transaction, Partitions are those that
// lack the marker.
type Description struct {
	ID string
	Transaction
}

// Describe tells of one transactional id.
func (m *Machine) Describe(id string, fx *coordinator.Effects, reply func(Description, error)) {
	t, known := m.ids[id]
	var err error
	switch {
	case id == "":
		err = kerr.InvalidRequest
	case !known:
		err = kerr.TransactionalIDNotFound
	case t.State.prepared():
		t.Partitions = slices.SortedFunc(maps.Keys(m.lacking[id]), comparePartitions)
	}
	fx.Then(func(failed error) { reply(Description{id, t}, firstOf(failed, err)) })
}

// Filter says which transactional ids to list; the zero Filter but for OpenMs -1 lists all.
type Filter struct {
	// ProducerIDs and States list only those of these; nil: any.
	ProducerIDs map[int64]struct{}
	States      map[State]struct{}
	// OpenMs lists only those that began so long ago, at least; negative: any. As in Kafka, ids that never had a
	// transaction pass.
	OpenMs int64
	// Pattern matches the whole transactional id; nil: any.
	Pattern *regexp.Regexp
}

// Listing is one line of a list.
type Listing struct {
	ID         string
	ProducerID int64
	State      State
}

// List lists the transactional ids that pass the filter, by name.
func (m *Machine) List(f Filter, now time.Time, fx *coordinator.Effects, reply func([]Listing, error)) {
	var list []Listing
	for id, t := range m.ids {
		if f.passes(id, &t, now) {
			list = append(list, Listing{id, t.ProducerID, t.State})
		}
	}
	slices.SortFunc(list, func(a, b Listing) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	fx.Then(func(err error) { reply(list, err) })
}

func (f *Filter) passes(id string, t *Transaction, now time.Time) bool {
	if f.ProducerIDs != nil {
		if _, ok := f.ProducerIDs[t.ProducerID]; !ok {
			return false
		}
	}
	if f.States != nil {
		if _, ok := f.States[t.State]; !ok {
			return false
		}
	}
	if f.OpenMs >= 0 && t.StartMs > now.UnixMilli()-f.OpenMs {
		return false
	}
	return f.Pattern == nil || f.Pattern.MatchString(id)
}

// CompilePattern makes Filter.Pattern of an expression that is to match a whole transactional id; nil for "".
func CompilePattern(expression string) (*regexp.Regexp, error) {
	if expression == "" {
		return nil, nil
	}
	return regexp.Compile(`^(?:` + expression + `)$`)
}
