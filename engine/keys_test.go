package engine

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"cairn/internal/ids"
)

func TestKeysRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := ids.PartitionID(rapid.Uint64().Draw(t, "partition"))
		o := ids.Offset(rapid.Int64Min(0).Draw(t, "offset"))
		epoch := ids.LeaderEpoch(rapid.Int32().Draw(t, "epoch"))
		s, r := ids.ShardID(rapid.Uint64().Draw(t, "shard")), ids.ReplicaID(rapid.Uint64().Draw(t, "replica"))
		i := ids.RaftIndex(rapid.Uint64().Draw(t, "index"))
		if gp, gotO, err := parseDataKey(appendDataKey(nil, p, o)); err != nil || gp != p || gotO != o {
			t.Fatalf("data key: %v %v %v", gp, gotO, err)
		}
		if gp, gotO, err := parseTimeKey(appendTimeKey(nil, p, o)); err != nil || gp != p || gotO != o {
			t.Fatalf("time key: %v %v %v", gp, gotO, err)
		}
		if gp, ge, gotO, err := parseQuarantineKey(appendQuarantineKey(nil, p, epoch, o)); err != nil || gp != p || ge != epoch || gotO != o {
			t.Fatalf("quarantine key: %v %v %v %v", gp, ge, gotO, err)
		}
		if gs, gr, gi, err := parseEntryKey(appendEntryKey(nil, s, r, i)); err != nil || gs != s || gr != r || gi != i {
			t.Fatalf("entry key: %v %v %v %v", gs, gr, gi, err)
		}
		for _, kind := range []rowKind{rowState, rowStart, rowBootstrap, rowSnapshot} {
			if gk, gs, gr, err := parseReplicaKey(appendReplicaKey(nil, kind, s, r)); err != nil || gk != kind || gs != s || gr != r {
				t.Fatalf("replica key: %v %v %v %v", gk, gs, gr, err)
			}
		}
		for _, kind := range []rowKind{rowOwner, rowMeta, rowCheckpoint, rowProducers} {
			if gk, gp, err := parsePartitionKey(appendPartitionKey(nil, kind, p)); err != nil || gk != kind || gp != p {
				t.Fatalf("partition key: %v %v %v", gk, gp, err)
			}
		}
	})
}

func TestKeysSortByTheirNumbers(t *testing.T) {
	inOrder := [][]byte{
		appendDataKey(nil, 1, 0), appendDataKey(nil, 1, 255), appendDataKey(nil, 1, 256), appendDataKey(nil, 1, math.MaxInt64), appendDataKey(nil, 2, 0),
		appendEntryKey(nil, 1, 9, 5), appendEntryKey(nil, 1, 10, 1), appendEntryKey(nil, 2, 1, 1),
		appendQuarantineKey(nil, 1, ids.NoEpoch, 9), appendQuarantineKey(nil, 1, 0, 3), appendQuarantineKey(nil, 1, 1, 2), appendQuarantineKey(nil, 1, math.MaxInt32, 1), appendQuarantineKey(nil, 2, 0, 0),
	}
	if !slices.IsSortedFunc(inOrder, bytes.Compare) {
		t.Errorf("keys are out of order: %x", inOrder)
	}
}

func TestKeyLengths(t *testing.T) {
	for want, key := range map[int][]byte{
		dataKeyLen: appendDataKey(nil, 1, 1), entryKeyLen: appendEntryKey(nil, 1, 1, 1),
		quarantineKeyLen: appendQuarantineKey(nil, 1, 1, 1), partitionKeyLen: appendPartitionKey(nil, rowMeta, 1),
	} {
		if len(key) != want {
			t.Errorf("key %x has %d bytes, want %d", key, len(key), want)
		}
	}
	if len(appendTimeKey(nil, 1, 1)) != timeKeyLen || len(appendReplicaKey(nil, rowState, 1, 1)) != replicaKeyLen {
		t.Error("time or replica key of another length")
	}
}

func TestBoundsHoldExactlyTheirRows(t *testing.T) {
	inside := func(key, lo, hi []byte) bool { return bytes.Compare(key, lo) >= 0 && bytes.Compare(key, hi) < 0 }
	check := func(name string, lo, hi []byte, in, out [][]byte) {
		for _, k := range in {
			if !inside(k, lo, hi) {
				t.Errorf("%s: %x is outside", name, k)
			}
		}
		for _, k := range out {
			if inside(k, lo, hi) {
				t.Errorf("%s: %x is inside", name, k)
			}
		}
	}
	data := func(p ids.PartitionID, o ids.Offset) []byte { return appendDataKey(nil, p, o) }
	lo, hi := dataBounds(3, 10, 20)
	check("data", lo, hi, [][]byte{data(3, 10), data(3, 19)}, [][]byte{data(3, 9), data(3, 20), data(2, 15), data(4, 15), appendTimeKey(nil, 3, 15)})
	lo, hi = timeBounds(3, 10, 20)
	check("time", lo, hi, [][]byte{appendTimeKey(nil, 3, 10)}, [][]byte{appendTimeKey(nil, 3, 20), data(3, 15)})
	lo, hi = partitionBounds(rowQuarantine, 3)
	check("quarantine", lo, hi, [][]byte{appendQuarantineKey(nil, 3, ids.NoEpoch, 0), appendQuarantineKey(nil, 3, math.MaxInt32, math.MaxInt64)},
		[][]byte{appendQuarantineKey(nil, 2, math.MaxInt32, math.MaxInt64), appendQuarantineKey(nil, 4, ids.NoEpoch, 0)})
	lo, hi = entryBounds(3, 4, 10, 20)
	check("entries", lo, hi, [][]byte{appendEntryKey(nil, 3, 4, 10), appendEntryKey(nil, 3, 4, 19)}, [][]byte{appendEntryKey(nil, 3, 4, 9), appendEntryKey(nil, 3, 4, 20), appendEntryKey(nil, 3, 5, 15)})
	lo, hi = replicaEntryBounds(3, 4)
	check("replica", lo, hi, [][]byte{appendEntryKey(nil, 3, 4, 0), appendEntryKey(nil, 3, 4, math.MaxUint64)}, [][]byte{appendEntryKey(nil, 3, 3, 7), appendEntryKey(nil, 3, 5, 0), appendEntryKey(nil, 4, 4, 1)})
	lo, hi = kindBounds(rowOwner)
	check("kind", lo, hi, [][]byte{appendPartitionKey(nil, rowOwner, 0), appendPartitionKey(nil, rowOwner, math.MaxUint64)}, [][]byte{appendPartitionKey(nil, rowMeta, 1), appendReplicaKey(nil, rowSnapshot, 1, 1)})
}

func FuzzKeys(f *testing.F) {
	f.Add(appendDataKey(nil, 1, 2))
	f.Add(appendTimeKey(nil, 1, 2))
	f.Add(appendQuarantineKey(nil, 1, 2, 3))
	f.Add(appendEntryKey(nil, 1, 2, 3))
	f.Add(appendReplicaKey(nil, rowState, 1, 2))
	f.Add(appendPartitionKey(nil, rowOwner, 1))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, k []byte) {
		var again []byte
		if p, o, err := parseDataKey(k); err == nil {
			again = appendDataKey(nil, p, o)
		} else if p, o, err := parseTimeKey(k); err == nil {
			again = appendTimeKey(nil, p, o)
		} else if p, e, o, err := parseQuarantineKey(k); err == nil {
			again = appendQuarantineKey(nil, p, e, o)
		} else if s, r, i, err := parseEntryKey(k); err == nil {
			again = appendEntryKey(nil, s, r, i)
		} else if kind, s, r, err := parseReplicaKey(k); err == nil {
			again = appendReplicaKey(nil, kind, s, r)
		} else if kind, p, err := parsePartitionKey(k); err == nil {
			again = appendPartitionKey(nil, kind, p)
		} else if !errors.Is(err, errBadKey) {
			t.Fatalf("error %v", err)
		} else {
			return
		}
		if !bytes.Equal(again, k) {
			t.Fatalf("%x is read, but written as %x", k, again)
		}
	})
}
