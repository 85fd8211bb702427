package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// capture is an Output whose text a test can look at.
type capture struct{ out, err bytes.Buffer }

func (c *capture) output(asJSON bool) Output {
	c.out.Reset()
	c.err.Reset()
	return Output{Out: &c.out, Err: &c.err, JSON: asJSON}
}

func fakeCluster(t *testing.T, opts ...kfake.Opt) (*kfake.Cluster, Connection) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, Connection{Bootstrap: strings.Join(c.ListenAddrs(), ",")}
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestTopicsLifeCycle(t *testing.T) {
	_, conn := fakeCluster(t)
	ctx, c := testContext(t), &capture{}
	create := CreateTopicOptions{Topic: "orders", Partitions: 3, ReplicationFactor: 1, Configs: []string{"retention.ms=1000"}}
	if err := CreateTopic(ctx, conn, create, c.output(false)); err != nil {
		t.Fatal(err)
	}
	if got, want := c.out.String(), "Created topic orders.\n"; got != want {
		t.Errorf("create printed %q, want %q", got, want)
	}
	if err := CreateTopic(ctx, conn, create, c.output(false)); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("second create: %v, want that it exists", err)
	}
	create.IfNotExists = true
	if err := CreateTopic(ctx, conn, create, c.output(false)); err != nil || c.out.Len() != 0 {
		t.Errorf("create if not exists: %v, printed %q", err, c.out.String())
	}
	if err := CreateTopic(ctx, conn, CreateTopicOptions{Topic: "a.b", Partitions: 1, ReplicationFactor: 1}, c.output(false)); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(c.err.String(), "WARNING: ") {
		t.Errorf("no warning about the dot, but %q", c.err.String())
	}
	if err := ListTopics(ctx, conn, TopicSelection{}, c.output(false)); err != nil || c.out.String() != "a.b\norders\n" {
		t.Errorf("list: %v, printed %q", err, c.out.String())
	}
	alter := AlterTopicOptions{TopicSelection: TopicSelection{Topic: "orders"}, Partitions: 5, Configs: []string{"max.message.bytes=2000"}}
	if err := AlterTopics(ctx, conn, alter, c.output(false)); err != nil {
		t.Fatal(err)
	}
	if err := DescribeTopics(ctx, conn, DescribeTopicsOptions{TopicSelection: TopicSelection{Topic: "ord.*"}, PartitionsPerAsk: 2}, c.output(false)); err != nil {
		t.Fatal(err)
	}
	checkDescription(t, c.out.String())
	if err := DeleteTopics(ctx, conn, TopicSelection{Topic: "orders,a.b"}, c.output(true)); err != nil || c.out.String() != `{"deleted":["a.b","orders"]}`+"\n" {
		t.Errorf("delete: %v, printed %q", err, c.out.String())
	}
	if err := DeleteTopics(ctx, conn, TopicSelection{Topic: "orders"}, c.output(false)); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("delete of a deleted topic: %v", err)
	}
	if err := DeleteTopics(ctx, conn, TopicSelection{Topic: "orders", IfExists: true}, c.output(false)); err != nil {
		t.Errorf("delete if exists: %v", err)
	}
}

// checkDescription checks Kafka's lines for the topic "orders" with five partitions.
func checkDescription(t *testing.T, text string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) != 6 {
		t.Fatalf("describe printed %d lines:\n%s", len(lines), text)
	}
	if !strings.HasPrefix(lines[0], "Topic: orders\tTopicId: ") || !strings.Contains(lines[0], "\tPartitionCount: 5\tReplicationFactor: 1\tConfigs: ") ||
		!strings.HasSuffix(lines[0], "max.message.bytes=2000,retention.ms=1000") {
		t.Errorf("topic line %q", lines[0])
	}
	for i, l := range lines[1:] {
		f := strings.Split(l, "\t")
		if len(f) != 8 || f[1] != "Topic: orders" || f[2] != fmt.Sprintf("Partition: %d", i) || !strings.HasPrefix(f[3], "Leader: ") {
			t.Errorf("partition line %q", l)
		}
	}
}

func TestDescribeFilters(t *testing.T) {
	topic := &topicDescription{Topic: "t", minISR: 2, Configs: map[string]string{}}
	full := partitionDescription{Partition: 0, Leader: 1, Replicas: []int32{1, 2, 3}, ISR: []int32{1, 2, 3}}
	at := partitionDescription{Partition: 1, Leader: 1, Replicas: []int32{1, 2, 3}, ISR: []int32{1, 2}}
	under := partitionDescription{Partition: 2, Leader: 3, Replicas: []int32{1, 2, 3}, ISR: []int32{3}}
	none := partitionDescription{Partition: 3, Leader: -1, Replicas: []int32{1, 2, 3}, ISR: []int32{}, ELR: []int32{3}, LastKnownELR: []int32{}}
	for _, tc := range []struct {
		name string
		o    DescribeTopicsOptions
		want []int32
	}{
		{"under-replicated", DescribeTopicsOptions{UnderReplicated: true}, []int32{1, 2, 3}},
		{"under min ISR", DescribeTopicsOptions{UnderMinISR: true}, []int32{2, 3}},
		{"at min ISR", DescribeTopicsOptions{AtMinISR: true}, []int32{1}},
		{"unavailable", DescribeTopicsOptions{Unavailable: true}, []int32{2, 3}}, // broker 3 is not among the live ones
	} {
		topic.Partitions = []partitionDescription{full, at, under, none}
		c := &capture{}
		if err := tc.o.print([]*topicDescription{topic}, []int32{1, 2}, c.output(true)); err != nil {
			t.Fatal(err)
		}
		var got []topicDescription
		if err := json.Unmarshal(c.out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		var ids []int32
		for _, p := range got[0].Partitions {
			ids = append(ids, p.Partition)
		}
		if fmt.Sprint(ids) != fmt.Sprint(tc.want) {
			t.Errorf("%s: partitions %v, want %v", tc.name, ids, tc.want)
		}
	}
	var b strings.Builder
	none.appendLine(&b, "t")
	full.appendLine(&b, "t")
	want := "\tTopic: t\tPartition: 3\tLeader: none\tReplicas: 1,2,3\tIsr: \tElr: 3\tLastKnownElr: \n" +
		"\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3\tElr: N/A\tLastKnownElr: N/A\n"
	if b.String() != want {
		t.Errorf("lines\n%q\nwant\n%q", b.String(), want)
	}
}

func TestReplicaAssignment(t *testing.T) {
	got, err := parseAssignment("1:2,2:3,3:1")
	if err != nil || fmt.Sprint(got) != "[[1 2] [2 3] [3 1]]" {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "1,", "1:1", "1:2,3", "a", "-1", "1::2"} {
		if got, err := parseAssignment(bad); err == nil {
			t.Errorf("%q taken as %v", bad, got)
		}
	}
}

func TestTextRoundTripThroughEachCodec(t *testing.T) {
	_, conn := fakeCluster(t, kfake.AllowAutoTopicCreation())
	ctx := testContext(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var text []byte
	for i := range 5000 {
		text = fmt.Appendf(text, "line %d\r %x\t\x00\xff", i, rng.Uint64())
		text = append(text, bytes.Repeat([]byte{'x'}, rng.IntN(300))...)
		text = append(text, '\n')
	}
	file := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		c, o := &capture{}, DefaultProduceOptions()
		o.Topic, o.File, o.Codec, o.Partition = "text-"+codec, file, codec, 0
		if err := Produce(ctx, conn, o, c.output(false)); err != nil {
			t.Fatalf("%s: %v", codec, err)
		}
		if said := c.err.String(); !strings.Contains(said, "WARNING: topic '"+o.Topic+"' does not exist") {
			t.Errorf("%s: nothing was said of a new topic, but %q", codec, said)
		}
		r := DefaultConsumeOptions()
		r.Topic, r.FromBeginning, r.MaxMessages, r.Partition = o.Topic, true, 5000, 0
		if err := Consume(ctx, conn, r, c.output(false)); err != nil {
			t.Fatalf("%s: %v", codec, err)
		}
		if !bytes.Equal(c.out.Bytes(), text) {
			t.Errorf("%s: %d bytes came back, not the %d written", codec, c.out.Len(), len(text))
		}
		if got, want := c.err.String(), "Processed a total of 5000 messages\n"; got != want {
			t.Errorf("%s: end line %q, want %q", codec, got, want)
		}
	}
}

func TestJSONRoundTripKeepsKeysHeadersAndNulls(t *testing.T) {
	_, conn := fakeCluster(t, kfake.SeedTopics(1, "j"))
	ctx, c, o := testContext(t), &capture{}, DefaultProduceOptions()
	const lines = "{\"headers\":[{\"key\":\"h\",\"value\":\"AP8=\"},{\"key\":\"n\",\"value\":null}],\"key\":\"aw==\",\"value\":\"dg==\",\"timestamp\":1000}\n" +
		"{\"key\":null,\"value\":\"\"}\n{\"key\":\"aw==\",\"value\":null}\n"
	o.Topic, o.JSONInput, o.In = "j", true, strings.NewReader(lines)
	if err := Produce(ctx, conn, o, c.output(true)); err != nil {
		t.Fatal(err)
	}
	if got, want := c.out.String(), `{"topic":"j","sent":3,"acked":3,"failed":0}`+"\n"; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
	r := DefaultConsumeOptions()
	r.Topic, r.Offset, r.Partition, r.MaxMessages = "j", "0", 0, 3
	if err := Consume(ctx, conn, r, c.output(true)); err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(&c.out)
	var got []jsonRecord
	for dec.More() {
		var j jsonRecord
		if err := dec.Decode(&j); err != nil {
			t.Fatal(err)
		}
		got = append(got, j)
	}
	if len(got) != 3 || *got[0].Timestamp != 1000 || *got[2].Offset != 2 {
		t.Fatalf("records %+v", got)
	}
	if h := got[0].Headers; len(h) != 2 || !bytes.Equal(h[0].Value, []byte{0, 255}) || h[1].Value != nil {
		t.Errorf("headers %+v", h)
	}
	if string(got[0].Key) != "k" || got[1].Key != nil || got[1].Value == nil || got[2].Value != nil {
		t.Errorf("nulls changed: %+v", got)
	}
}

func TestProduceCountsFailedRecords(t *testing.T) {
	cluster, conn := fakeCluster(t, kfake.SeedTopics(1, "f"))
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		r := req.(*kmsg.ProduceRequest)
		resp := r.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range r.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.InvalidRecord.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	c, o := &capture{}, DefaultProduceOptions()
	o.Topic, o.In = "f", strings.NewReader("a\nb\nc")
	err := Produce(testContext(t), conn, o, c.output(false))
	if err == nil || !strings.Contains(err.Error(), "3 of 3 records to topic '") || !strings.Contains(err.Error(), "INVALID_RECORD") {
		t.Errorf("error %v", err)
	}
}

func TestProduceToAPartitionThatIsNotThere(t *testing.T) {
	_, conn := fakeCluster(t, kfake.SeedTopics(2, "two"))
	c, o := &capture{}, DefaultProduceOptions()
	o.Topic, o.Partition, o.In = "two", 2, strings.NewReader("a")
	if err := Produce(testContext(t), conn, o, c.output(false)); err == nil || !strings.Contains(err.Error(), "has no partition 2: it has 2") {
		t.Errorf("error %v", err)
	}
}

func TestConsumeSaysWhatIsWrong(t *testing.T) {
	_, conn := fakeCluster(t, kfake.SeedTopics(2, "two"))
	ctx := testContext(t)
	for _, tc := range []struct {
		change func(*ConsumeOptions)
		want   string
	}{
		{func(o *ConsumeOptions) { o.Topic = "none" }, "does not exist"},
		{func(o *ConsumeOptions) { o.Partition = 2 }, "has no partition 2: it has 2"},
		{func(o *ConsumeOptions) { o.Offset = "7" }, "needs --partition"},
		{func(o *ConsumeOptions) { o.Offset, o.Partition = "7", 1 }, "offset 7 of two-1 is not in the log"},
		{func(o *ConsumeOptions) { o.Offset = "first" }, "want earliest, latest or a number"},
		{func(o *ConsumeOptions) { o.Isolation = "strict" }, "want read_uncommitted or read_committed"},
		{func(o *ConsumeOptions) { o.FormatterProperties = []string{"print.all=true"} }, "unknown"},
	} {
		c, o := &capture{}, DefaultConsumeOptions()
		o.Topic, o.Timeout = "two", 10*time.Second
		tc.change(&o)
		if err := Consume(ctx, conn, o, c.output(false)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("error %v, want one with %q", err, tc.want)
		}
	}
}

// TestConsumeReadsPartitionsThatAreAdded: as a consumer in a group does.
func TestConsumeReadsPartitionsThatAreAdded(t *testing.T) {
	_, conn := fakeCluster(t, kfake.SeedTopics(1, "growing"))
	ctx := testContext(t)
	send := func(partition int32, value string) {
		c, o := &capture{}, DefaultProduceOptions()
		o.Topic, o.Partition, o.In = "growing", partition, strings.NewReader(value+"\n")
		if err := Produce(ctx, conn, o, c.output(false)); err != nil {
			t.Fatal(err)
		}
	}
	reader := conn
	reader.Properties = []string{"metadata.max.age.ms=100"}
	c, o := &capture{}, DefaultConsumeOptions()
	o.Topic, o.FromBeginning, o.MaxMessages = "growing", true, 2
	out, done := c.output(false), make(chan error, 1)
	go func() { done <- Consume(ctx, reader, o, out) }()
	send(0, "first")
	if err := AlterTopics(ctx, conn, AlterTopicOptions{TopicSelection: TopicSelection{Topic: "growing"}, Partitions: 2}, (&capture{}).output(false)); err != nil {
		t.Fatal(err)
	}
	send(1, "second")
	if err := <-done; err != nil || c.out.String() != "first\nsecond\n" && c.out.String() != "second\nfirst\n" {
		t.Errorf("%v, printed %q and %q", err, c.out.String(), c.err.String())
	}
}

func TestConsumeStopsWhenNothingComes(t *testing.T) {
	_, conn := fakeCluster(t, kfake.SeedTopics(1, "idle"))
	c, o := &capture{}, DefaultConsumeOptions()
	o.Topic, o.Timeout = "idle", 50*time.Millisecond
	if err := Consume(testContext(t), conn, o, c.output(false)); err != nil || !strings.HasSuffix(c.err.String(), "Processed a total of 0 messages\n") {
		t.Errorf("%v, printed %q", err, c.err.String())
	}
}

func TestConsumeTellsOfPartitionsWithoutLeader(t *testing.T) {
	cluster, conn := fakeCluster(t, kfake.SeedTopics(1, "offline"))
	cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := r.(*kmsg.MetadataRequest)
		if len(req.Topics) == 0 {
			return nil, nil, false
		}
		host, port, _ := net.SplitHostPort(cluster.ListenAddrs()[0])
		n, _ := strconv.Atoi(port)
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		b := kmsg.NewMetadataResponseBroker()
		b.Host, b.Port = host, int32(n)
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic, topic.TopicID = kmsg.StringPtr("offline"), [16]byte{1}
		for i := range int32(2) {
			p := kmsg.NewMetadataResponseTopicPartition()
			p.Partition, p.Leader, p.ErrorCode = i, -1, kerr.LeaderNotAvailable.Code
			topic.Partitions = append(topic.Partitions, p)
		}
		resp.Brokers, resp.Topics = append(resp.Brokers, b), append(resp.Topics, topic)
		return resp, nil, true
	})
	c, o := &capture{}, DefaultConsumeOptions()
	o.Topic, o.Timeout = "offline", 50*time.Millisecond
	err := Consume(testContext(t), conn, o, c.output(false))
	if got := c.err.String(); err != nil || !strings.Contains(got, "without leader, and so not read: offline-0 offline-1;") {
		t.Errorf("%v, printed %q", err, got)
	}
	o.Partition = 1
	err = Consume(testContext(t), conn, o, c.output(false))
	if got := c.err.String(); err != nil || !strings.Contains(got, "and so not read: offline-1;") {
		t.Errorf("partition 1: %v, printed %q", err, got)
	}
}

func TestUnreachableBrokerIsNamedAtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	c := &capture{}
	err = ListTopics(testContext(t), Connection{Bootstrap: addr}, TopicSelection{}, c.output(false))
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), addr) {
		t.Errorf("error %v", err)
	}
}

func TestExplain(t *testing.T) {
	if err := Explain(nil); err != nil {
		t.Error(err)
	}
	if err := Explain(fmt.Errorf("ask: %w", context.DeadlineExceeded)); !strings.Contains(err.Error(), "/readyz") || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := Explain(fmt.Errorf("ask: %w", &kgo.ErrFirstReadEOF{})); !strings.Contains(err.Error(), "controller") {
		t.Error(err)
	}
	if err := Explain(fmt.Errorf("ask: %w", context.Canceled)); !strings.Contains(err.Error(), "interrupted") {
		t.Error(err)
	}
	if err := Explain(fmt.Errorf("%w: %w", ErrUnreachable, context.DeadlineExceeded)); strings.Contains(err.Error(), "/readyz") {
		t.Error(err)
	}
}

func TestBrokerErrorHasTheBrokersWords(t *testing.T) {
	words := "broker 2 is not registered"
	err := brokerError(kerr.InvalidReplicaAssignment.Code, &words)
	if err.Error() != "INVALID_REPLICA_ASSIGNMENT: "+words || !errors.Is(err, kerr.InvalidReplicaAssignment) {
		t.Error(err)
	}
}

func TestDeliveryErrorsSayWhatToLookAt(t *testing.T) {
	for err, want := range map[error]string{kerr.MessageTooLarge: "max.message.bytes", kerr.InvalidTopicException: "internal topics", kerr.NotEnoughReplicas: ""} {
		d := delivery{firstErr: fmt.Errorf("record: %w", err)}
		if got := d.hint(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
