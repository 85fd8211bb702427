package broker

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"cairn/broker/controller"
	"cairn/internal/ids"
	"cairn/wire/batch"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// changed returns raw with its bytes changed by f, and a CRC to match.
func changed(raw []byte, f func(b []byte)) []byte {
	b := append([]byte(nil), raw...)
	f(b)
	batch.SetCRC(b)
	return b
}

// TestProduceChecks is Kafka's table of checks, row by row, in the order in which they count.
func TestProduceChecks(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 1, map[string]string{"max.message.bytes": "500"})
	compacted := mustTopic(t, n, "compacted", 1, map[string]string{"cleanup.policy": "compact"})
	good := testBatch(t, 2)
	control := changed(good, func(b []byte) { b[22] |= 1 << 5 })
	big := batchAt(t, 200, time.Now().UnixMilli())
	now := time.Now().UnixMilli()
	idempotent := testBatch(t, 1, fromProducer(900, 3, 0))

	cases := []struct {
		name     string
		req      *kmsg.ProduceRequest
		want     *kerr.Error
		logStart int64 // -1: not told
	}{
		{"transactional batch without a transactional id", produceReq(9, -1, "t", id, 0, testBatch(t, 1, func(c *batch.BuilderConfig) { c.Transactional = true; c.ProducerID = 1; c.BaseSequence = 0 })), kerr.TransactionalIDAuthorizationFailed, -1},
		{"unknown topic id", produceReq(13, -1, "", kadm.TopicID{1, 2, 3}, 0, good), kerr.UnknownTopicID, -1},
		{"unknown topic", produceReq(12, -1, "nope", id, 0, good), kerr.UnknownTopicOrPartition, -1},
		{"unknown partition", produceReq(12, -1, "t", id, 1, good), kerr.UnknownTopicOrPartition, -1},
		{"negative partition", produceReq(13, -1, "", id, -1, good), kerr.UnknownTopicOrPartition, -1},
		{"no batch", produceReq(9, -1, "t", id, 0, nil), kerr.InvalidRecord, -1},
		{"half a header", produceReq(9, -1, "t", id, 0, good[:30]), kerr.InvalidRecord, -1},
		{"old magic", produceReq(9, -1, "t", id, 0, changed(good, func(b []byte) { b[16] = 1 })), kerr.InvalidRecord, -1},
		{"two batches", produceReq(9, -1, "t", id, 0, append(append([]byte(nil), good...), good...)), kerr.InvalidRecord, -1},
		{"zstd before version 7", produceReq(6, -1, "t", id, 0, testBatch(t, 1, withCodec(batch.CodecZstd))), kerr.UnsupportedCompressionType, -1},
		{"unknown acks", produceReq(9, 2, "t", id, 0, good), kerr.InvalidRequiredAcks, -1},
		{"unknown partition counts before acks", produceReq(9, 2, "t", id, 5, good), kerr.UnknownTopicOrPartition, -1},
		{"base offset", produceReq(9, -1, "t", id, 0, changed(good, func(b []byte) { b[7] = 1 })), kerr.InvalidRecord, 0},
		{"too large", produceReq(9, -1, "t", id, 0, big), kerr.MessageTooLarge, -1},
		{"size counts before CRC", produceReq(9, -1, "t", id, 0, append(append([]byte(nil), big[:len(big)-1]...), big[len(big)-1]^1)), kerr.MessageTooLarge, -1},
		{"bad CRC", produceReq(9, -1, "t", id, 0, append(append([]byte(nil), good[:len(good)-1]...), good[len(good)-1]^1)), kerr.CorruptMessage, -1},
		{"record count", produceReq(9, -1, "t", id, 0, changed(good, func(b []byte) { b[60] = 9 })), kerr.InvalidRecord, 0},
		{"control batch", produceReq(9, -1, "t", id, 0, control), kerr.InvalidRecord, 0},
		{"null key where compacted", produceReq(9, -1, "compacted", compacted, 0, good), kerr.InvalidRecord, 0},
		{"timestamp too far ahead", produceReq(9, -1, "t", id, 0, batchAt(t, 1, now+2*3_600_000)), kerr.InvalidTimestamp, 0},
		{"log append time from a client", produceReq(9, -1, "t", id, 0, changed(good, func(b []byte) { b[22] |= 1 << 3; binary.BigEndian.PutUint64(b[35:], ^uint64(0)) })), kerr.InvalidTimestamp, 0},
		{"good, acks all", produceReq(9, -1, "t", id, 0, good), nil, 0},
		{"good, acks 1", produceReq(9, 1, "t", id, 0, good), nil, 0},
		{"idempotent", produceReq(9, -1, "t", id, 0, idempotent), nil, 0},
		{"sequence gap", produceReq(9, -1, "t", id, 0, testBatch(t, 1, fromProducer(900, 3, 5))), kerr.OutOfOrderSequenceNumber, 0},
		{"old producer epoch", produceReq(9, -1, "t", id, 0, testBatch(t, 1, fromProducer(900, 2, 1))), kerr.InvalidProducerEpoch, 0},
	}
	c := dialNode(t, n)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c.t = t
			before := mustEnd(t, n, tc.req)
			p := c.produce(tc.req)
			wantCode(t, "produce", p.ErrorCode, tc.want)
			if p.LogStartOffset != tc.logStart {
				t.Errorf("log start %d, want %d", p.LogStartOffset, tc.logStart)
			}
			appended := mustEnd(t, n, tc.req) != before
			if (tc.want == nil) != appended {
				t.Errorf("appended: %v", appended)
			}
			if tc.want != nil && (p.BaseOffset != -1 || p.LogAppendTime != -1 || tc.req.Version >= 8 && (p.ErrorMessage == nil || *p.ErrorMessage == "")) {
				t.Errorf("%+v", p)
			}
		})
	}
}

// mustEnd is the log end of the first partition that the request names, 0 when there is none.
func mustEnd(t *testing.T, n *Node, req *kmsg.ProduceRequest) int64 {
	t.Helper()
	p, err := n.broker.replicas.lookup(req.Topics[0].Topic, req.Topics[0].Partitions[0].Partition)
	if err != nil {
		return 0
	}
	return int64(p.log().End())
}

func TestProduceAnswersEveryVersion(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 1, nil)
	stamped := mustTopic(t, n, "stamped", 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
	c := dialNode(t, n)
	next := int64(0)
	for version := int16(3); version <= 13; version++ {
		for _, acks := range []int16{-1, 1} {
			p := c.produce(produceReq(version, acks, "t", id, 0, testBatch(t, 3)))
			wantCode(t, fmt.Sprintf("version %d", version), p.ErrorCode, nil)
			if p.BaseOffset != next || p.LogAppendTime != -1 || version >= 5 && p.LogStartOffset != 0 {
				t.Errorf("version %d acks %d: %+v, want base offset %d", version, acks, p, next)
			}
			next += 3
		}
		before := time.Now().UnixMilli()
		p := c.produce(produceReq(version, 1, "stamped", stamped, 0, testBatch(t, 1)))
		if p.ErrorCode != 0 || p.LogAppendTime < before || p.LogAppendTime > time.Now().UnixMilli() {
			t.Errorf("version %d: log append time %d", version, p.LogAppendTime)
		}
	}
}

func TestProduceRecordErrorsNameTheRecords(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	mustTopic(t, n, "compacted", 1, map[string]string{"cleanup.policy": "compact"})
	p := dialNode(t, n).produce(produceReq(8, -1, "compacted", kadm.TopicID{}, 0, testBatch(t, 2)))
	wantCode(t, "produce", p.ErrorCode, kerr.InvalidRecord)
	if len(p.ErrorRecords) != 2 || p.ErrorRecords[1].RelativeOffset != 1 || p.ErrorRecords[1].ErrorMessage == nil {
		t.Errorf("record errors %+v", p.ErrorRecords)
	}
}

func TestProduceMixedPartitionsGetTheirOwnAnswers(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 2, nil)
	req := produceReq(9, -1, "t", id, 1, testBatch(t, 3))
	addBatch(req, "nope", id, 0, testBatch(t, 1))
	addBatch(req, "t", id, 0, testBatch(t, 1)[:40])
	addBatch(req, "t", id, 7, testBatch(t, 1))
	addBatch(req, "t", id, 0, testBatch(t, 2))
	resp := dialNode(t, n).do(req).(*kmsg.ProduceResponse)
	var got []string
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			got = append(got, fmt.Sprintf("%s-%d %d %d", rt.Topic, p.Partition, p.ErrorCode, p.BaseOffset))
		}
	}
	want := fmt.Sprint([]string{"t-1 0 0", "nope-0 3 -1", "t-0 87 -1", "t-7 3 -1", "t-0 0 0"})
	if fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestProduceDuplicatesAnswerWithTheFirstOffset(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 1, nil)
	c := dialNode(t, n)
	stamp := time.Now().UnixMilli()
	for seq := range int32(6) {
		for range 2 { // the second one is the same batch sent again
			p := c.produce(produceReq(9, -1, "t", id, 0, batchAt(t, 1, stamp, fromProducer(5, 0, seq))))
			wantCode(t, "produce", p.ErrorCode, nil)
			if p.BaseOffset != int64(seq) {
				t.Errorf("sequence %d at offset %d", seq, p.BaseOffset)
			}
		}
	}
	dup := c.produce(produceReq(9, -1, "t", id, 0, batchAt(t, 1, stamp, fromProducer(5, 0, 2))))
	if dup.ErrorCode != 0 || dup.BaseOffset != 2 || dup.LogAppendTime != stamp {
		t.Errorf("duplicate: %+v", dup)
	}
	old := c.produce(produceReq(9, -1, "t", id, 0, batchAt(t, 1, stamp, fromProducer(5, 0, 0))))
	wantCode(t, "duplicate older than five batches", old.ErrorCode, kerr.OutOfOrderSequenceNumber)
	if p := awaitLeader(t, n, "t", 0); p.log().End() != 6 {
		t.Errorf("log end %d", p.log().End())
	}
}

func TestProducePipelinedRequestsKeepTheirOrder(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 1, nil)
	c := dialNode(t, n)
	const requests = 50
	var reqs []*kmsg.ProduceRequest
	for i := range requests {
		acks := []int16{-1, 1, 0}[i%3]
		reqs = append(reqs, produceReq(9, acks, "t", id, 0, testBatch(t, 1, fromProducer(5, 0, int32(i)))))
		c.send(reqs[i])
	}
	for i, req := range reqs {
		if req.Acks == 0 {
			continue
		}
		p := c.receive(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.BaseOffset != int64(i) {
			t.Errorf("request %d: %+v", i, p)
		}
	}
}

func TestProduceWithoutAcks(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 1, nil)
	t.Run("success is silent", func(t *testing.T) {
		c := dialNode(t, n)
		c.send(produceReq(9, 0, "t", id, 0, testBatch(t, 1)))
		metadata := kmsg.NewPtrMetadataRequest()
		metadata.Version = 9
		if resp := c.do(metadata).(*kmsg.MetadataResponse); len(resp.Brokers) != 1 {
			t.Errorf("the next answer is not that of the next request: %+v", resp)
		}
	})
	t.Run("failure closes the connection", func(t *testing.T) {
		c := dialNode(t, n)
		c.send(produceReq(9, 0, "nope", id, 0, testBatch(t, 1)))
		if !c.closed() {
			t.Error("the connection is open, or something was answered")
		}
	})
}

func TestProduceNotLedHereTellsWhoLeads(t *testing.T) {
	c := startCluster(t, 2)
	defer c.close(t)
	cl := c.client(t)
	adm := kadm.NewClient(cl)
	created, err := adm.CreateTopic(testContext(t), 2, 1, nil, "t")
	if err != nil {
		t.Fatal(err)
	}
	leader := func(i int32) int {
		return *eventually(t, func() *int {
			for j, b := range c.brokers {
				if p, err := b.broker.replicas.lookup("t", i); err == nil && p.isLeader() {
					return &j
				}
			}
			return nil
		})
	}
	owner := leader(0)
	other := c.brokers[1-owner]
	awaitTrue(t, func() bool { // the other broker has heard, too
		img := other.images.Image()
		p, ok := img.Partition("t", 0)
		return ok && img.Leader(p) == c.brokers[owner].broker.nodeID
	})
	raw := dialNode(t, other)
	for _, version := range []int16{9, 10, 13} {
		resp := raw.do(produceReq(version, -1, "t", created.ID, 0, testBatch(t, 1))).(*kmsg.ProduceResponse)
		p := resp.Topics[0].Partitions[0]
		wantCode(t, "produce", p.ErrorCode, kerr.NotLeaderForPartition)
		if version < 10 {
			continue
		}
		if p.CurrentLeader.LeaderID != int32(owner+1) || p.CurrentLeader.LeaderEpoch != 0 ||
			len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != int32(owner+1) || resp.Brokers[0].Port == 0 {
			t.Errorf("version %d: leader %+v, endpoints %+v", version, p.CurrentLeader, resp.Brokers)
		}
	}
}

func TestProduceNeedsTheMinimumOfInSyncReplicas(t *testing.T) {
	c := startCluster(t, 2)
	defer c.close(t)
	adm := kadm.NewClient(c.client(t))
	minimum := "2"
	created, err := adm.CreateTopic(testContext(t), 1, 2, map[string]*string{"min.insync.replicas": &minimum}, "t")
	if err != nil {
		t.Fatal(err)
	}
	leader := *eventually(t, func() *int {
		for j, b := range c.brokers {
			if p, err := b.broker.replicas.lookup("t", 0); err == nil && p.isLeader() {
				return &j
			}
		}
		return nil
	})
	raw := dialNode(t, c.brokers[leader])
	wantCode(t, "both in sync", raw.produce(produceReq(9, -1, "t", created.ID, 0, testBatch(t, 1))).ErrorCode, nil)
	c.stop(t, 2-leader)
	// One of two is no majority: the survivor goes on in the next generation.
	c.await(t, "the survivor leads", "t", func(img *controller.Image, p *controller.Partition) bool {
		return p.Generation == 1 && img.Leader(p) != ids.NoNode
	})
	awaitTrue(t, func() bool {
		p, err := c.brokers[leader].broker.replicas.lookup("t", 0)
		return err == nil && p.generation == 1 && p.isLeader()
	})
	p := awaitLeader(t, c.brokers[leader], "t", 0)
	awaitTrue(t, func() bool {
		size, _ := p.inSyncCount()
		return size == 1
	})
	end := p.log().End()
	wantCode(t, "one in sync", raw.produce(produceReq(9, -1, "t", created.ID, 0, testBatch(t, 1))).ErrorCode, kerr.NotEnoughReplicas)
	if p.log().End() != end {
		t.Error("something was appended")
	}
	ack1 := raw.produce(produceReq(9, 1, "t", created.ID, 0, testBatch(t, 1)))
	wantCode(t, "acks=1 does not ask", ack1.ErrorCode, nil)
	if ack1.BaseOffset != int64(end) {
		t.Errorf("acks=1 at offset %d, want %d", ack1.BaseOffset, end)
	}
}

func TestProduceTimesOutWhileNoMajorityAnswers(t *testing.T) {
	c := startDeaf(t, 2, "1", time.Minute)
	defer c.close(t)
	c.deaf[2].Store(true)
	raw := dialNode(t, c.brokers[0])
	req := produceReq(9, -1, "t", c.id, 0, testBatch(t, 1))
	req.TimeoutMillis = 300
	start := time.Now()
	p := raw.produce(req)
	wantCode(t, "produce", p.ErrorCode, kerr.RequestTimedOut)
	if d := time.Since(start); d < 300*time.Millisecond || d > 800*time.Millisecond {
		t.Errorf("answered after %v", d)
	}
	if w := c.brokers[0].broker.purgatory.waiting(); w != 0 {
		t.Errorf("%d requests wait", w)
	}
	led := awaitLeader(t, c.brokers[0], "t", 0)
	awaitTrue(t, func() bool { return led.watches.len() == 0 }) // it goes after the answer
}
