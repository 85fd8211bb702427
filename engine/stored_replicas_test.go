package engine

import (
	"slices"
	"testing"
)

// TestStoredReplicasListsWhatIsLeftOver: a replica of the generation before is listed until it is dropped.
func TestStoredReplicasListsWhatIsLeftOver(t *testing.T) {
	c := newRebaseCase(t)
	e, former := c.leader.e, testBinding(1)
	want := []StoredReplica{{former.Shard, former.Replica}, {900, 901}}
	if got, err := e.StoredReplicas(); err != nil || !slices.Equal(got, want) {
		t.Fatalf("%v, %v; want %v", got, err, want)
	}
	if err := e.DropFormerOwners(1); err != nil {
		t.Fatal(err)
	}
	if got, err := e.StoredReplicas(); err != nil || !slices.Equal(got, want[1:]) {
		t.Errorf("%v, %v; want %v", got, err, want[1:])
	}
}
