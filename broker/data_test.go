package broker

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"cairn/wire/batch"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rawClient is a connection on which a test sends requests of chosen versions, one at a time or pipelined.
type rawClient struct {
	t  *testing.T
	nc net.Conn
}

func dialNode(t *testing.T, n *Node) *rawClient {
	t.Helper()
	nc, err := net.Dial("tcp", clientAddress(n))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	return &rawClient{t, nc}
}

func (c *rawClient) send(req kmsg.Request) {
	c.t.Helper()
	mustWrite(c.t, c.nc, frameOf(req, 7))
}

// receive reads the answer to a request that was sent.
func (c *rawClient) receive(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(c.nc, size[:]); err != nil {
		c.t.Fatalf("response to %s: %v", kmsg.NameForKey(req.Key()), err)
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c.nc, body); err != nil {
		c.t.Fatal(err)
	}
	skip := 4
	if req.IsFlexible() {
		skip = 5 // an empty list of tagged fields
	}
	resp := req.ResponseKind()
	if err := resp.ReadFrom(body[skip:]); err != nil {
		c.t.Fatalf("response to %s v%d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp
}

func (c *rawClient) do(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	c.send(req)
	return c.receive(req)
}

// closed reports whether the broker has closed the connection without another byte.
func (c *rawClient) closed() bool {
	var one [1]byte
	n, err := c.nc.Read(one[:])
	return n == 0 && (err == io.EOF || isReset(err))
}

// mustTopic creates a topic through the node and returns its id. It waits until all partitions are led.
func mustTopic(t *testing.T, n *Node, name string, partitions int32, configs map[string]string) kadm.TopicID {
	t.Helper()
	adm := kadm.NewClient(newTestClient(t, kgo.SeedBrokers(clientAddress(n)), kgo.MetadataMinAge(10*time.Millisecond)))
	set := map[string]*string{}
	for k, v := range configs {
		set[k] = &v
	}
	resp, err := adm.CreateTopic(testContext(t), partitions, 1, set, name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range partitions {
		awaitLeader(t, n, name, i)
	}
	return resp.ID
}

// awaitLeader waits until the node serves the partition as its leader.
func awaitLeader(t *testing.T, n *Node, topic string, index int32) *partition {
	t.Helper()
	return eventually(t, func() *partition {
		if p, err := n.broker.replicas.lookup(topic, index); err == nil && p.isLeader() {
			return p
		}
		return nil
	})
}

// eventually calls f until it returns something, and fails the test when its time is over.
func eventually[T any](t *testing.T, f func() *T) *T {
	t.Helper()
	ctx := testContext(t)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if v := f(); v != nil {
			return v
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("waited in vain")
		}
	}
}

// batchOption changes the batch that testBatch makes.
type batchOption func(*batch.BuilderConfig)

func fromProducer(id int64, epoch int16, sequence int32) batchOption {
	return func(c *batch.BuilderConfig) { c.ProducerID, c.ProducerEpoch, c.BaseSequence = id, epoch, sequence }
}

func withCodec(codec batch.Codec) batchOption {
	return func(c *batch.BuilderConfig) { c.Codec = codec }
}

// testBatch makes a batch of n records "v0", "v1" and so on, stamped now.
func testBatch(t testing.TB, n int, opts ...batchOption) []byte {
	t.Helper()
	return batchAt(t, n, time.Now().UnixMilli(), opts...)
}

func batchAt(t testing.TB, n int, timestamp int64, opts ...batchOption) []byte {
	t.Helper()
	cfg := batch.NewBuilderConfig(batch.CodecNone, timestamp)
	for _, o := range opts {
		o(&cfg)
	}
	b, err := batch.NewBuilder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := b.AppendKV(timestamp, nil, fmt.Appendf(nil, "v%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// produceReq asks to append one batch to one partition.
func produceReq(version, acks int16, topic string, id kadm.TopicID, partition int32, raw []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, acks, 10_000
	addBatch(req, topic, id, partition, raw)
	return req
}

func addBatch(req *kmsg.ProduceRequest, topic string, id kadm.TopicID, partition int32, raw []byte) {
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = topic, id
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, raw
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
}

// produce sends the request and returns the answer for its first partition.
func (c *rawClient) produce(req *kmsg.ProduceRequest) kmsg.ProduceResponseTopicPartition {
	c.t.Helper()
	return c.do(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

func wantCode(t *testing.T, what string, got int16, want *kerr.Error) {
	t.Helper()
	code := int16(0)
	if want != nil {
		code = want.Code
	}
	if got != code {
		t.Errorf("%s: error %v, want %v", what, kerr.ErrorForCode(got), kerr.ErrorForCode(code))
	}
}
