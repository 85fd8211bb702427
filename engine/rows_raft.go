package engine

import (
	"fmt"
	"maps"
	"slices"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"cairn/internal/bin"
	"cairn/internal/ids"
)

// appendStateRow encodes Raft's hard state.
func appendStateRow(dst []byte, s pb.State) []byte {
	dst = bin.AppendUvarint(append(dst, rowVersion), s.Term)
	dst = bin.AppendUvarint(dst, s.Vote)
	return bin.AppendUvarint(dst, s.Commit)
}

func decodeStateRow(b []byte) (pb.State, error) {
	r := bin.NewReader(b)
	r.Version(rowVersion)
	s := pb.State{Term: r.Uvarint(), Vote: r.Uvarint(), Commit: r.Uvarint()}
	return s, rowError(rowState, r.Done())
}

// StartPoint is where a replica's Raft log starts: the entry before its first one and what the log was there. The
// zero value is the beginning of a log.
type StartPoint struct {
	Index      ids.RaftIndex // last entry that is gone; 0: none is
	Term       ids.Term      // its term
	LogState                 // after it
	Membership pb.Membership // after it
}

func (s *StartPoint) appendTo(dst []byte) []byte {
	dst = bin.AppendUvarint(append(dst, rowVersion), uint64(s.Index))
	dst = bin.AppendUvarint(dst, uint64(s.Term))
	dst = s.LogState.appendTo(dst)
	m := &s.Membership
	dst = bin.AppendUvarint(dst, m.ConfigChangeId)
	dst = appendMembers(dst, m.Addresses)
	dst = appendMembers(dst, m.NonVotings)
	dst = appendMembers(dst, m.Witnesses)
	dst = bin.AppendUvarint(dst, uint64(len(m.Removed)))
	for _, id := range slices.Sorted(maps.Keys(m.Removed)) {
		dst = bin.AppendUvarint(dst, id)
	}
	return dst
}

func decodeStartPoint(b []byte) (StartPoint, error) {
	r := bin.NewReader(b)
	r.Version(rowVersion)
	s := StartPoint{Index: ids.RaftIndex(r.Uvarint()), Term: ids.Term(r.Uvarint())}
	s.LogState.read(&r)
	s.Membership = pb.Membership{
		ConfigChangeId: r.Uvarint(),
		Addresses:      readMembers(&r),
		NonVotings:     readMembers(&r),
		Witnesses:      readMembers(&r),
	}
	n := r.Count(1)
	s.Membership.Removed = make(map[uint64]bool, n)
	for id, i := uint64(0), 0; i < n; i++ {
		if id = readAscending(&r, id, i == 0); r.Err() != nil {
			break
		}
		s.Membership.Removed[id] = true
	}
	if err := r.Done(); err != nil {
		return StartPoint{}, rowError(rowStart, err)
	}
	return s, nil
}

// appendMembers encodes replica ids with their addresses in ascending order, so that equal maps give equal bytes.
func appendMembers(dst []byte, members map[uint64]string) []byte {
	dst = bin.AppendUvarint(dst, uint64(len(members)))
	for _, id := range slices.Sorted(maps.Keys(members)) {
		dst = bin.AppendBytes(bin.AppendUvarint(dst, id), members[id])
	}
	return dst
}

func readMembers(r *bin.Reader) map[uint64]string {
	n := r.Count(2)
	members := make(map[uint64]string, n)
	for id, i := uint64(0), 0; i < n; i++ {
		id = readAscending(r, id, i == 0)
		addr := r.String()
		if r.Err() != nil {
			break
		}
		members[id] = addr
	}
	return members
}

// readAscending reads an id that must be above the one before unless it is the first.
func readAscending(r *bin.Reader, before uint64, first bool) uint64 {
	id := r.Uvarint()
	if !first && id <= before {
		r.Fail("replica ids are not ascending at %d", id)
	}
	return id
}

// appendBootstrapRow encodes the members a replica was started with.
func appendBootstrapRow(dst []byte, b pb.Bootstrap) []byte {
	dst = bin.AppendBool(append(dst, rowVersion), b.Join)
	dst = bin.AppendUvarint(dst, uint32(b.Type))
	return appendMembers(dst, b.Addresses)
}

func decodeBootstrapRow(v []byte) (pb.Bootstrap, error) {
	r := bin.NewReader(v)
	r.Version(rowVersion)
	b := pb.Bootstrap{Join: r.Bool(), Type: pb.StateMachineType(r.PositiveInt32()), Addresses: readMembers(&r)}
	if err := r.Done(); err != nil {
		return pb.Bootstrap{}, rowError(rowBootstrap, err)
	}
	return b, nil
}

// appendSnapshotRow encodes a snapshot record in dragonboat's own form.
func appendSnapshotRow(dst []byte, s pb.Snapshot) ([]byte, error) {
	b, err := s.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode snapshot record at index %d: %w", s.Index, err)
	}
	return append(append(dst, rowVersion), b...), nil
}

func decodeSnapshotRow(b []byte) (s pb.Snapshot, err error) {
	r := bin.NewReader(b)
	r.Version(rowVersion)
	body := r.Rest()
	if err := r.Done(); err != nil {
		return pb.Snapshot{}, rowError(rowSnapshot, err)
	}
	if err := s.Unmarshal(body); err != nil {
		return pb.Snapshot{}, rowError(rowSnapshot, err)
	}
	return s, nil
}
