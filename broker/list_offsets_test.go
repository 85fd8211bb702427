package broker

import (
	"fmt"
	"testing"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func listReq(version int16, topic string, partition int32, timestamps ...int64) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = version, -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for _, ts := range timestamps {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, ts, -1
		rt.Partitions = append(rt.Partitions, p)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

func (c *rawClient) list(req *kmsg.ListOffsetsRequest) kmsg.ListOffsetsResponseTopicPartition {
	c.t.Helper()
	return c.do(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
}

func TestListOffsets(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 1, nil)
	mustTopic(t, n, "empty", 1, nil)
	c := dialNode(t, n)
	for _, ts := range []int64{1000, 3000, 2000, 3000} { // out of order; offsets 0, 2, 4 and 6
		if p := c.produce(produceReq(9, -1, "t", id, 0, batchAt(t, 2, ts))); p.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(p.ErrorCode))
		}
	}
	type answer struct {
		code              int16
		offset, timestamp int64
		epoch             int32
	}
	none := answer{0, -1, -1, -1}
	unsupported := answer{kerr.UnsupportedVersion.Code, -1, -1, -1}
	cases := []struct {
		topic     string
		timestamp int64
		since     int16 // the first version that knows the timestamp
		want      answer
	}{
		{"t", -1, 1, answer{0, 8, -1, 0}},
		{"t", -2, 1, answer{0, 0, -1, 0}},
		{"t", -3, 7, answer{0, 2, 3000, 0}},
		{"t", -4, 8, answer{0, 0, -1, 0}},
		{"t", -5, 9, none},
		{"t", -6, 11, none},
		{"t", -7, 99, none},
		{"t", 0, 1, answer{0, 0, 1000, 0}},
		{"t", 1000, 1, answer{0, 0, 1000, 0}},
		{"t", 1001, 1, answer{0, 2, 3000, 0}},
		{"t", 3000, 1, answer{0, 2, 3000, 0}},
		{"t", 3001, 1, none},
		{"empty", -1, 1, answer{0, 0, -1, 0}},
		{"empty", -2, 1, answer{0, 0, -1, 0}},
		{"empty", -3, 7, none},
		{"empty", 1000, 1, none},
		{"nope", -1, 1, answer{kerr.UnknownTopicOrPartition.Code, -1, -1, -1}},
	}
	for version := int16(1); version <= 11; version++ {
		for _, tc := range cases {
			for isolation := range int8(2) {
				req := listReq(version, tc.topic, 0, tc.timestamp)
				req.IsolationLevel = isolation
				p := c.list(req)
				want := tc.want
				if version < tc.since {
					want = unsupported
				}
				if version < 4 {
					want.epoch = -1
				}
				if got := (answer{p.ErrorCode, p.Offset, p.Timestamp, p.LeaderEpoch}); got != want {
					t.Errorf("version %d isolation %d: timestamp %d of %s: %+v, want %+v", version, isolation, tc.timestamp, tc.topic, got, want)
				}
			}
		}
	}
}

func TestListOffsetsChecks(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	mustTopic(t, n, "t", 2, nil)
	c := dialNode(t, n)
	twice := listReq(5, "t", 0, -1, -2)
	single := kmsg.NewListOffsetsRequestTopicPartition()
	single.Partition, single.Timestamp, single.CurrentLeaderEpoch = 1, -1, -1
	twice.Topics[0].Partitions = append(twice.Topics[0].Partitions, single)
	resp := c.do(twice).(*kmsg.ListOffsetsResponse).Topics[0].Partitions
	var codes []int16
	for _, p := range resp {
		codes = append(codes, p.ErrorCode)
	}
	if fmt.Sprint(codes) != fmt.Sprint([]int16{kerr.InvalidRequest.Code, kerr.InvalidRequest.Code, 0}) {
		t.Errorf("a partition named twice: %v", codes)
	}
	epoch := listReq(5, "t", 0, -1)
	epoch.Topics[0].Partitions[0].CurrentLeaderEpoch = 9
	wantCode(t, "newer epoch", c.list(epoch).ErrorCode, kerr.UnknownLeaderEpoch)
	wantCode(t, "no such partition", c.list(listReq(5, "t", 2, -1)).ErrorCode, kerr.UnknownTopicOrPartition)
}

// TestListOffsetsWaitsForTheHighWatermarkOfANewLeader takes the high watermark back behind the start of the epoch, as
// it is on a leader that has not heard of the latest commits.
func TestListOffsetsWaitsForTheHighWatermarkOfANewLeader(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 1, nil)
	c := dialNode(t, n)
	c.produce(produceReq(9, -1, "t", id, 0, batchAt(t, 2, 1000)))
	c.produce(produceReq(9, -1, "t", id, 0, batchAt(t, 2, 2000)))
	p := awaitLeader(t, n, "t", 0)
	old := p.reign.Load()
	p.endReplication() // which would raise it again
	p.reign.Store(&reign{term: old.term, epoch: old.epoch, ctx: old.ctx, cancel: old.cancel, start: 4})
	p.hw.Store(2)
	for _, tc := range []struct {
		version   int16
		timestamp int64
		want      *kerr.Error
	}{
		{5, -1, kerr.OffsetNotAvailable},
		{4, -1, kerr.LeaderNotAvailable},
		{1, -1, kerr.LeaderNotAvailable},
		{11, 2000, kerr.OffsetNotAvailable},
		{11, -3, nil},
		{11, 1000, nil},
		{11, -2, nil},
	} {
		wantCode(t, fmt.Sprintf("version %d timestamp %d", tc.version, tc.timestamp), c.list(listReq(tc.version, "t", 0, tc.timestamp)).ErrorCode, tc.want)
	}
	p.hw.Store(4)
	if a := c.list(listReq(5, "t", 0, -1)); a.ErrorCode != 0 || a.Offset != 4 {
		t.Errorf("%+v", a)
	}
	p.reign.Store(old)
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	id := mustTopic(t, n, "t", 1, nil)
	dialNode(t, n).fill("t", id, 0, 2)
	stopNode(t, n)
	n = startNode(t, dir)
	defer stopNode(t, n)
	now := awaitLeader(t, n, "t", 0).reign.Load().epoch // there were epochs in which nobody led
	c := dialNode(t, n)
	c.fill("t", id, 0, 1)
	for version := int16(2); version <= 4; version++ {
		for _, tc := range []struct {
			topic          string
			partition      int32
			current, epoch ids.LeaderEpoch
			wantEpoch      ids.LeaderEpoch
			wantEnd        int64
			want           *kerr.Error
		}{
			{"t", 0, -1, 0, 0, 4, nil},
			{"t", 0, now, now, now, 6, nil},
			{"t", 0, -1, now - 1, 0, 4, nil},
			{"t", 0, -1, now + 1, -1, -1, nil},
			{"t", 0, 0, 0, -1, -1, kerr.FencedLeaderEpoch},
			{"t", 0, now + 1, 0, -1, -1, kerr.UnknownLeaderEpoch},
			{"t", 1, -1, 0, -1, -1, kerr.UnknownTopicOrPartition},
			{"nope", 0, -1, 0, -1, -1, kerr.UnknownTopicOrPartition},
		} {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			req.Version, req.ReplicaID = version, -1
			rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
			rt.Topic = tc.topic
			q := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			q.Partition, q.CurrentLeaderEpoch, q.LeaderEpoch = tc.partition, int32(tc.current), int32(tc.epoch)
			rt.Partitions = append(rt.Partitions, q)
			req.Topics = append(req.Topics, rt)
			p := c.do(req).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
			wantCode(t, fmt.Sprintf("v%d %+v", version, tc), p.ErrorCode, tc.want)
			if p.LeaderEpoch != int32(tc.wantEpoch) || p.EndOffset != tc.wantEnd || p.Partition != tc.partition {
				t.Errorf("v%d %+v: %+v", version, tc, p)
			}
		}
	}
}
