package broker

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"cairn/internal/ids"
	"cairn/wire/batch"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchTopic asks for one partition per offset, the first of them partition 0; a negative offset leaves one out.
func fetchTopic(version int16, topic string, id kadm.TopicID, offsets ...int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MinBytes, req.MaxBytes, req.SessionEpoch = version, 1, 50<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = topic, id
	for i, o := range offsets {
		if o < 0 {
			continue
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch, p.LastFetchedEpoch = int32(i), o, 1<<20, -1, -1
		rt.Partitions = append(rt.Partitions, p)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

func (c *rawClient) fetch(req *kmsg.FetchRequest) *kmsg.FetchResponse {
	c.t.Helper()
	return c.do(req).(*kmsg.FetchResponse)
}

// baseOffsets lists the base offsets of the batches in raw, and fails when they are not whole and intact.
func baseOffsets(t *testing.T, raw []byte) (bases []int64) {
	t.Helper()
	for len(raw) > 0 {
		h, b, rest, err := batch.Split(raw)
		if err != nil {
			t.Fatalf("records: %v", err)
		}
		if err := batch.VerifyCRC(b); err != nil {
			t.Fatal(err)
		}
		bases = append(bases, h.BaseOffset)
		raw = rest
	}
	return bases
}

// fill appends batches of two records each to a partition.
func (c *rawClient) fill(topic string, id kadm.TopicID, partition int32, batches int) {
	c.t.Helper()
	for range batches {
		if p := c.produce(produceReq(9, -1, topic, id, partition, testBatch(c.t, 2))); p.ErrorCode != 0 {
			c.t.Fatalf("produce: %v", kerr.ErrorForCode(p.ErrorCode))
		}
	}
}

func TestFetchEveryVersion(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 1, nil)
	c := dialNode(t, n)
	c.fill("t", id, 0, 3)
	for version := int16(4); version <= 18; version++ {
		for isolation := range int8(2) {
			req := fetchTopic(version, "t", id, 3) // inside the second batch
			req.IsolationLevel = isolation
			resp := c.fetch(req)
			if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
				t.Fatalf("version %d: %+v", version, resp)
			}
			if rt := resp.Topics[0]; version < 13 && rt.Topic != "t" || version >= 13 && kadm.TopicID(rt.TopicID) != id {
				t.Errorf("version %d: topic %q %v", version, rt.Topic, rt.TopicID)
			}
			p := resp.Topics[0].Partitions[0]
			if got := fmt.Sprint(baseOffsets(t, p.RecordBatches)); p.ErrorCode != 0 || got != "[2 4]" || p.HighWatermark != 6 || p.LastStableOffset != 6 ||
				version >= 5 && p.LogStartOffset != 0 || version >= 11 && p.PreferredReadReplica != -1 {
				t.Errorf("version %d isolation %d: batches %s of %+v", version, isolation, got, p)
			}
			if (p.AbortedTransactions == nil) != (isolation == 0) {
				t.Errorf("version %d isolation %d: aborted transactions %v", version, isolation, p.AbortedTransactions)
			}
		}
	}
}

func TestFetchErrors(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 1, nil)
	c := dialNode(t, n)
	c.fill("t", id, 0, 2)
	with := func(offset int64, f func(p *kmsg.FetchRequestTopicPartition)) *kmsg.FetchRequest {
		req := fetchTopic(16, "t", id, offset)
		req.MaxWaitMillis = 60_000 // an error is never waited with
		f(&req.Topics[0].Partitions[0])
		return req
	}
	nothing := func(*kmsg.FetchRequestTopicPartition) {}
	for _, tc := range []struct {
		name string
		req  *kmsg.FetchRequest
		want *kerr.Error
	}{
		{"below the log start", with(0, func(p *kmsg.FetchRequestTopicPartition) { p.FetchOffset = -5 }), kerr.OffsetOutOfRange},
		{"above the log end", with(5, nothing), kerr.OffsetOutOfRange},
		{"the right leader epoch", with(0, func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = 0 }), nil},
		{"newer leader epoch", with(0, func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = 7 }), kerr.UnknownLeaderEpoch},
		{"unknown last epoch", with(2, func(p *kmsg.FetchRequestTopicPartition) { p.LastFetchedEpoch = 9 }), kerr.OffsetOutOfRange},
		{"unknown topic id", fetchTopic(13, "", kadm.TopicID{9}, 0), kerr.UnknownTopicID},
		{"unknown topic", fetchTopic(12, "nope", id, 0), kerr.UnknownTopicOrPartition},
		{"unknown partition", fetchTopic(12, "t", id, -1, 0), kerr.UnknownTopicOrPartition},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c.t = t
			p := c.fetch(tc.req).Topics[0].Partitions[0]
			wantCode(t, "fetch", p.ErrorCode, tc.want)
			if tc.want != nil && len(p.RecordBatches) > 0 {
				t.Error("records beside an error")
			}
		})
	}
}

func TestFetchFencesAnOldLeaderEpochAndTellsOfDivergence(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	id := mustTopic(t, n, "t", 1, nil)
	dialNode(t, n).fill("t", id, 0, 2)
	stopNode(t, n)
	n = startNode(t, dir) // leads again in a later epoch, which starts at offset 4
	defer stopNode(t, n)
	epoch := int32(awaitLeader(t, n, "t", 0).reign.Load().epoch)
	c := dialNode(t, n)
	c.fill("t", id, 0, 1)

	fenced := fetchTopic(16, "t", id, 0)
	fenced.Topics[0].Partitions[0].CurrentLeaderEpoch = 0
	resp := c.fetch(fenced)
	p := resp.Topics[0].Partitions[0]
	wantCode(t, "old epoch", p.ErrorCode, kerr.FencedLeaderEpoch)
	if p.CurrentLeader.LeaderEpoch != epoch || p.CurrentLeader.LeaderID != int32(n.broker.nodeID) || len(resp.Brokers) != 1 {
		t.Errorf("current leader %+v, endpoints %+v", p.CurrentLeader, resp.Brokers)
	}

	diverging := fetchTopic(12, "t", id, 5)
	diverging.Topics[0].Partitions[0].LastFetchedEpoch = 0
	diverging.MaxWaitMillis = 60_000
	p = c.fetch(diverging).Topics[0].Partitions[0]
	if p.ErrorCode != 0 || p.DivergingEpoch.Epoch != 0 || p.DivergingEpoch.EndOffset != 4 || len(p.RecordBatches) != 0 {
		t.Errorf("divergence: %+v", p)
	}
	same := fetchTopic(12, "t", id, 4)
	same.Topics[0].Partitions[0].LastFetchedEpoch = 0
	p = c.fetch(same).Topics[0].Partitions[0]
	if p.ErrorCode != 0 || p.DivergingEpoch.Epoch != -1 || fmt.Sprint(baseOffsets(t, p.RecordBatches)) != "[4]" {
		t.Errorf("no divergence: %+v", p)
	}
}

func TestFetchLimits(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 3, nil)
	c := dialNode(t, n)
	for i := range int32(3) {
		c.fill("t", id, i, 4)
	}
	size := int32(len(testBatch(t, 2)))
	got := func(req *kmsg.FetchRequest) string {
		var s []string
		for _, p := range c.fetch(req).Topics[0].Partitions {
			s = append(s, fmt.Sprint(p.Partition, baseOffsets(t, p.RecordBatches)))
		}
		return fmt.Sprint(s)
	}
	t.Run("max bytes", func(t *testing.T) {
		req := fetchTopic(11, "t", id, 0, 0, 0)
		req.MaxBytes = 6*size + 3
		if g := got(req); g != "[0 [0 2 4 6] 1 [0 2] 2 []]" {
			t.Error(g)
		}
	})
	t.Run("partition max bytes", func(t *testing.T) {
		req := fetchTopic(11, "t", id, 0, 0, 0)
		for i := range req.Topics[0].Partitions {
			req.Topics[0].Partitions[i].PartitionMaxBytes = 2*size + 1
		}
		if g := got(req); g != "[0 [0 2] 1 [0 2] 2 [0 2]]" {
			t.Error(g)
		}
	})
	t.Run("the first batch comes whatever the limits", func(t *testing.T) {
		for _, limit := range []int32{0, 1, size - 1} {
			req := fetchTopic(11, "t", id, 8, 0, 0) // nothing in partition 0
			req.MaxBytes = limit
			if g := got(req); g != "[0 [] 1 [0] 2 []]" {
				t.Errorf("limit %d: %s", limit, g)
			}
		}
		req := fetchTopic(11, "t", id, 0, 0)
		for i := range req.Topics[0].Partitions {
			req.Topics[0].Partitions[i].PartitionMaxBytes = 1
		}
		if g := got(req); g != "[0 [0] 1 []]" {
			t.Error(g)
		}
	})
	t.Run("the order of the request counts", func(t *testing.T) {
		req := fetchTopic(11, "t", id, 0, 0, 0)
		ps := req.Topics[0].Partitions
		ps[0], ps[2] = ps[2], ps[0]
		req.MaxBytes = size
		if g := got(req); g != "[2 [0] 1 [] 0 []]" {
			t.Error(g)
		}
	})
}

func TestFetchWaitsForMinBytes(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 2, nil)
	producer, consumer := dialNode(t, n), dialNode(t, n)
	size := int32(len(testBatch(t, 2)))
	parked := func() {
		t.Helper()
		awaitTrue(t, func() bool { return n.broker.purgatory.waiting() > 0 && awaitLeader(t, n, "t", 0).watches.len() > 0 })
	}
	t.Run("until there is enough", func(t *testing.T) {
		req := fetchTopic(11, "t", id, 0, 0)
		req.MinBytes, req.MaxWaitMillis = 2*size, 20_000
		start := time.Now()
		consumer.send(req)
		parked()
		producer.fill("t", id, 0, 1)
		parked()
		producer.fill("t", id, 1, 1)
		resp := consumer.receive(req).(*kmsg.FetchResponse)
		if len(resp.Topics[0].Partitions[0].RecordBatches) == 0 || len(resp.Topics[0].Partitions[1].RecordBatches) == 0 {
			t.Error("not both partitions have records")
		}
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("answered after %v", d)
		}
	})
	t.Run("until max wait", func(t *testing.T) {
		req := fetchTopic(11, "t", id, 0, 2)
		req.MinBytes, req.MaxWaitMillis = 1<<20, 200
		start := time.Now()
		resp := consumer.fetch(req)
		// How exactly the purgatory keeps times is for its own tests; this machine may be busy.
		if d := time.Since(start); d < 200*time.Millisecond || d > 10*time.Second {
			t.Errorf("answered after %v", d)
		}
		if g := baseOffsets(t, resp.Topics[0].Partitions[0].RecordBatches); fmt.Sprint(g) != "[0]" {
			t.Errorf("what was there was not given: %v", g)
		}
	})
	t.Run("not at all with max wait 0", func(t *testing.T) {
		req := fetchTopic(11, "t", id, 2, 2)
		req.MinBytes, req.MaxWaitMillis = 1<<20, 0
		start := time.Now()
		if p := consumer.fetch(req).Topics[0].Partitions[0]; p.ErrorCode != 0 || p.HighWatermark != 2 {
			t.Errorf("%+v", p)
		}
		if d := time.Since(start); d > 10*time.Second { // as for ever: nothing else would end the wait
			t.Errorf("answered after %v", d)
		}
	})
	awaitTrue(t, func() bool { return n.broker.purgatory.waiting() == 0 })
}

func TestFetchThatWaitsHearsOfTheEndOfItsTopic(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 2, nil)
	consumer := dialNode(t, n)
	req := fetchTopic(13, "t", id, 0, 0)
	req.MaxWaitMillis = 20_000
	consumer.send(req)
	awaitTrue(t, func() bool { return n.broker.purgatory.waiting() > 0 && awaitLeader(t, n, "t", 0).watches.len() > 0 })
	if _, err := adminOf(t, n).DeleteTopic(testContext(t), "t"); err != nil {
		t.Fatal(err)
	}
	gone := 0
	for _, p := range consumer.receive(req).(*kmsg.FetchResponse).Topics[0].Partitions { // one of them was deleted first
		if p.ErrorCode == kerr.UnknownTopicID.Code || p.ErrorCode == kerr.NotLeaderForPartition.Code {
			gone++
		}
	}
	if gone == 0 {
		t.Error("answered without an error")
	}
}

func TestFetchSessionOverTheWire(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 3, nil)
	c := dialNode(t, n)
	c.fill("t", id, 1, 1)
	first := fetchTopic(13, "t", id, 0, 0, 0)
	first.SessionEpoch = 0
	full := c.fetch(first)
	if full.SessionID == 0 || len(full.Topics) != 1 || len(full.Topics[0].Partitions) != 3 {
		t.Fatalf("%+v", full)
	}
	next := func(epoch int32, f func(r *kmsg.FetchRequest)) *kmsg.FetchResponse {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.SessionID, req.SessionEpoch, req.MaxBytes = 13, full.SessionID, epoch, 1<<20
		if f != nil {
			f(req)
		}
		return c.fetch(req)
	}
	resp := next(1, func(r *kmsg.FetchRequest) { r.Topics = fetchTopic(13, "t", id, -1, 2).Topics })
	if len(resp.Topics) != 0 || resp.SessionID != full.SessionID {
		t.Errorf("nothing is new, but: %+v", resp)
	}
	c.fill("t", id, 2, 1)
	resp = next(2, nil)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != 2 {
		t.Errorf("partition 2 has news: %+v", resp.Topics)
	}
	for _, tc := range []struct {
		id, epoch int32
		version   int16
		want      *kerr.Error
	}{
		{full.SessionID, 9, 13, kerr.InvalidFetchSessionEpoch},
		{full.SessionID ^ 1, 1, 13, kerr.FetchSessionIDNotFound},
		{full.SessionID, 3, 12, kerr.FetchSessionTopicIDError},
	} {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.SessionID, req.SessionEpoch = tc.version, tc.id, tc.epoch
		resp := c.fetch(req)
		wantCode(t, "session", resp.ErrorCode, tc.want)
		if resp.SessionID != 0 || len(resp.Topics) != 0 {
			t.Errorf("%+v", resp)
		}
	}
}

// TestFetchGivesTheBytesThatWereProduced compares what consumers get with what the producer sent, codec by codec.
func TestFetchGivesTheBytesThatWereProduced(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 1, nil)
	c := dialNode(t, n)
	for codec := batch.CodecNone; codec <= batch.CodecZstd; codec++ {
		sent := testBatch(t, 100, withCodec(codec))
		at := c.produce(produceReq(9, -1, "t", id, 0, bytes.Clone(sent))).BaseOffset
		got := c.fetch(fetchTopic(11, "t", id, at)).Topics[0].Partitions[0].RecordBatches
		h, err := batch.ParseHeader(got)
		if err != nil {
			t.Fatal(err)
		}
		if h.BaseOffset != at || h.LeaderEpoch != 0 || int(h.Length) != len(sent)-batch.LengthOverhead {
			t.Errorf("%v: header %+v", codec, h)
		}
		if !bytes.Equal(got[17:], sent[17:]) {
			t.Errorf("%v: the records differ", codec)
		}
	}
}

// TestFetchReadsTheStoreForSeveralPartitionsAtATime: what one partition waits for at the disk, the others wait for meanwhile.
func TestFetchReadsTheStoreForSeveralPartitionsAtATime(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	id := mustTopic(t, n, "t", 4, nil)
	c := dialNode(t, n)
	for i := range int32(4) {
		c.fill("t", id, i, 3)
	}
	stopNode(t, n)

	var mu sync.Mutex
	inside, most := 0, 0
	cfg := mustLoad(t, "log.dirs="+dir, "listeners=PLAINTEXT://127.0.0.1:0")
	cfg.engineFaults.DataRead = func(ids.PartitionID, ids.Offset) {
		mu.Lock()
		inside++
		most = max(most, inside)
		mu.Unlock()
		<-time.After(50 * time.Millisecond) // as a slow disk
		mu.Lock()
		inside--
		mu.Unlock()
	}
	n, err := Start(testContext(t), cfg, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer stopNode(t, n)
	awaitReady(t, n)
	for i := range int32(4) {
		awaitLeader(t, n, "t", i)
	}
	for i, p := range dialNode(t, n).fetch(fetchTopic(11, "t", id, 0, 2, 6, 4)).Topics[0].Partitions {
		want := [][]int64{{0, 2, 4}, {2, 4}, nil, {4}}[i]
		if got := baseOffsets(t, p.RecordBatches); p.ErrorCode != 0 || !slices.Equal(got, want) {
			t.Errorf("partition %d: error %d, batches %v, want %v", i, p.ErrorCode, got, want)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if most < 2 {
		t.Errorf("%d reads at a time", most)
	}
}
