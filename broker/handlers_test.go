package broker

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"cairn/broker/controller"
	"cairn/internal/ids"
	"cairn/wire"
	"cairn/wire/private"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files instead of comparing with them")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%swant\n%s", path, got, want)
	}
}

// Names in testImage.
var (
	topicID    = ids.UUID{1}
	internalID = ids.UUID{2}
)

// testImage has brokers 1, 2 (fenced) and 3 (without the listener OUT), a topic t of three partitions and an internal one.
func testImage() *controller.Image {
	img := controller.NewImage()
	img.Index, img.ClusterID, img.Controller = 10, "cluster", 9
	rack := "r1"
	both := []controller.Endpoint{{Name: "IN", Host: "in", Port: 1}, {Name: "OUT", Host: "out", Port: 2}}
	img.Brokers[1] = &controller.Broker{ID: 1, Endpoints: both, Rack: &rack}
	img.Brokers[2] = &controller.Broker{ID: 2, Endpoints: both, Fenced: true}
	img.Brokers[3] = &controller.Broker{ID: 3, Endpoints: both[:1]}
	partition := func(id ids.PartitionID, leader ids.NodeID, replicas ...ids.NodeID) *controller.Partition {
		p := &controller.Partition{ID: id, Replicas: replicas, Voters: replicas, Leader: leader, LeaderEpoch: 5, InSync: replicas}
		for _, r := range replicas {
			p.ReplicaIDs = append(p.ReplicaIDs, ids.ReplicaID(10*uint64(id)+uint64(r)))
			p.Directories = append(p.Directories, ids.UUID{byte(r)})
		}
		return p
	}
	t := &controller.Topic{Name: "t", ID: topicID, Partitions: []*controller.Partition{
		partition(1, 1, 1, 2), partition(2, 2, 2, 1), partition(3, 3, 3, 1),
	}}
	t.Partitions[0].ELR, t.Partitions[0].LastKnownELR = []ids.NodeID{2}, []ids.NodeID{2}
	internal := &controller.Topic{Name: "__consumer_offsets", ID: internalID, Internal: true, Partitions: []*controller.Partition{partition(4, 1, 1)}}
	for _, topic := range []*controller.Topic{t, internal} {
		img.Topics[topic.Name], img.TopicsByID[topic.ID] = topic, topic
	}
	img.Configs[controller.Resource{Type: controller.TopicResource, Name: "t"}] = map[string]string{"retention.ms": "5"}
	img.Configs[controller.Resource{Type: controller.BrokerResource}] = map[string]string{"log.retention.ms": "7", "max.connections": "77"}
	img.Configs[controller.Resource{Type: controller.BrokerResource, Name: "1"}] = map[string]string{"max.connections": "88"}
	return img
}

// handlerTest is broker 1 with testImage behind real listeners IN, OUT and, for a controller, CONTROLLER.
type handlerTest struct {
	broker    *Broker
	listeners map[string]testServer
}

func startHandlers(t *testing.T, overrides ...string) *handlerTest {
	t.Helper()
	images := controller.NewStore()
	snapshot, err := controller.EncodeSnapshot(testImage())
	if err != nil {
		t.Fatal(err)
	}
	if err := images.Restore(snapshot); err != nil {
		t.Fatal(err)
	}
	b := newBroker(mustLoad(t, append([]string{"auto.create.topics.enable=false"}, overrides...)...), images, zap.NewNop())
	b.cfg.Voters = map[ids.NodeID]string{9: "c:9093"}
	cfg := testServerConfig(b.dispatch)
	cfg.APIs, _ = wire.NewTable(privateAPIs()...)
	h := &handlerTest{broker: b, listeners: map[string]testServer{}}
	for _, name := range []string{"IN", "OUT", "CONTROLLER"} {
		s := newServer(cfg)
		l, err := s.listen(name, "127.0.0.1:0", name == "CONTROLLER", false)
		if err != nil {
			t.Fatal(err)
		}
		close(s.opened)
		s.accept(l)
		h.listeners[name] = testServer{s, l.Addr().String()}
		t.Cleanup(func() { s.drain(t.Context()) })
	}
	return h
}

// ask sends a request on a connection of its own and returns the response, decoded in the request's version.
func (h *handlerTest) ask(t *testing.T, listener string, req kmsg.Request) kmsg.Response {
	t.Helper()
	nc := h.listeners[listener].dial(t)
	defer nc.Close()
	return roundTrip(t, nc, req)
}

func roundTrip(t *testing.T, nc net.Conn, req kmsg.Request) kmsg.Response {
	t.Helper()
	mustWrite(t, nc, frameOf(req, 1))
	body := readBody(t, nc)
	resp := req.ResponseKind()
	if resp.IsFlexible() && req.Key() != apiVersionsKey {
		body = body[1:] // the tags of the header
	}
	if err := resp.ReadFrom(body); err != nil {
		t.Fatalf("%T version %d: %v", resp, resp.GetVersion(), err)
	}
	return resp
}

// readBody reads a response and returns what follows the correlation id.
func readBody(t *testing.T, r io.Reader) []byte {
	t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		t.Fatalf("no response: %v", err)
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r, body); err != nil {
		t.Fatal(err)
	}
	return body[4:]
}

func withVersion[R kmsg.Request](req R, v int16) R {
	req.SetVersion(v)
	return req
}

func TestAPIVersionsGolden(t *testing.T) {
	h := startHandlers(t)
	var text bytes.Buffer
	for _, listener := range []string{"IN", "CONTROLLER"} {
		for v := range int16(5) {
			req := withVersion(kmsg.NewPtrApiVersionsRequest(), v)
			req.ClientSoftwareName, req.ClientSoftwareVersion = "test", "1.0"
			resp := h.ask(t, listener, req).(*kmsg.ApiVersionsResponse)
			fmt.Fprintf(&text, "%s version %d: error %d, %d features, epoch %d\n", listener, v, resp.ErrorCode, len(resp.SupportedFeatures), resp.FinalizedFeaturesEpoch)
			if v > 0 {
				continue
			}
			for _, k := range resp.ApiKeys {
				fmt.Fprintf(&text, "  %2d %s %d-%d\n", k.ApiKey, kmsg.NameForKey(k.ApiKey), k.MinVersion, k.MaxVersion)
			}
		}
	}
	golden(t, "api_versions.golden", text.String())
}

func TestAPIVersionsOfAnUnknownVersionIsAnsweredInVersion0(t *testing.T) {
	h := startHandlers(t)
	nc := h.listeners["IN"].dial(t)
	b := binary.BigEndian.AppendUint32(nil, 12)
	b = append(b, 0, 18, 0, 77, 0, 0, 0, 1, 0xff, 0xff, 0xde, 0xad) // the body is of no known form
	mustWrite(t, nc, b)
	resp := kmsg.NewPtrApiVersionsResponse()
	if err := resp.ReadFrom(readBody(t, nc)); err != nil {
		t.Fatal(err)
	}
	if resp.ErrorCode != kerr.UnsupportedVersion.Code || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != apiVersionsKey || resp.ApiKeys[0].MaxVersion != 4 {
		t.Errorf("got %+v", resp)
	}
	// The connection goes on.
	if r := roundTrip(t, nc, withVersion(kmsg.NewPtrApiVersionsRequest(), 0)).(*kmsg.ApiVersionsResponse); r.ErrorCode != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestAPIVersionsChecksSoftwareNames(t *testing.T) {
	h := startHandlers(t)
	for name, want := range map[string]int16{"apache-kafka-java": 0, "a": 0, "": kerr.InvalidRequest.Code, "-x": kerr.InvalidRequest.Code, "a b": kerr.InvalidRequest.Code} {
		req := withVersion(kmsg.NewPtrApiVersionsRequest(), 3)
		req.ClientSoftwareName, req.ClientSoftwareVersion = name, "4.3.0"
		if got := h.ask(t, "IN", req).(*kmsg.ApiVersionsResponse).ErrorCode; got != want {
			t.Errorf("%q: error %d, want %d", name, got, want)
		}
	}
}

func TestMetadataInEveryVersion(t *testing.T) {
	h := startHandlers(t)
	var text bytes.Buffer
	for _, listener := range []string{"IN", "OUT"} {
		for v := range int16(14) {
			req := withVersion(kmsg.NewPtrMetadataRequest(), v)
			req.Topics = []kmsg.MetadataRequestTopic{}
			for _, name := range []string{"t", "missing", "bad name"} {
				req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: kmsg.StringPtr(name)})
			}
			if v >= 12 {
				req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{TopicID: topicID}, kmsg.MetadataRequestTopic{TopicID: ids.UUID{99}})
			}
			req.IncludeTopicAuthorizedOperations, req.IncludeClusterAuthorizedOperations = true, true
			resp := h.ask(t, listener, req).(*kmsg.MetadataResponse)
			fmt.Fprintf(&text, "%s version %d\n", listener, v)
			printMetadata(&text, resp)
		}
	}
	golden(t, "metadata.golden", text.String())
}

// Java's client asks for a topic by its id with an empty name, not with a null one. An id comes before any name.
func TestMetadataByIDWithAName(t *testing.T) {
	h := startHandlers(t)
	req := withVersion(kmsg.NewPtrMetadataRequest(), 12)
	for _, id := range []ids.UUID{topicID, {99}} {
		req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: kmsg.StringPtr(""), TopicID: id})
	}
	req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: kmsg.StringPtr("t"), TopicID: ids.UUID{99}})
	got := h.ask(t, "IN", req).(*kmsg.MetadataResponse).Topics
	if got[0].ErrorCode != 0 || got[0].Topic == nil || *got[0].Topic != "t" || got[0].TopicID != topicID {
		t.Errorf("a topic that is there: %+v", got[0])
	}
	if got[1].ErrorCode != kerr.UnknownTopicID.Code || got[1].Topic != nil || got[1].TopicID != (ids.UUID{99}) {
		t.Errorf("a topic that is not there: %+v", got[1])
	}
	if got[2].ErrorCode != kerr.UnknownTopicID.Code || got[2].TopicID != (ids.UUID{99}) {
		t.Errorf("an unknown id with a name that is there: %+v", got[2])
	}
}

func printMetadata(w io.Writer, resp *kmsg.MetadataResponse) {
	str := func(s *string) string {
		if s == nil {
			return "null"
		}
		return *s
	}
	fmt.Fprintf(w, "  cluster %s, controller %d, operations %d\n", str(resp.ClusterID), resp.ControllerID, resp.AuthorizedOperations)
	for _, b := range resp.Brokers {
		fmt.Fprintf(w, "  broker %d %s:%d rack %s\n", b.NodeID, b.Host, b.Port, str(b.Rack))
	}
	for _, t := range resp.Topics {
		fmt.Fprintf(w, "  topic %s id %v internal %v error %d operations %d\n", str(t.Topic), ids.UUID(t.TopicID), t.IsInternal, t.ErrorCode, t.AuthorizedOperations)
		for _, p := range t.Partitions {
			fmt.Fprintf(w, "    %d leader %d epoch %d replicas %v isr %v offline %v error %d\n", p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, p.OfflineReplicas, p.ErrorCode)
		}
	}
}

func TestMetadataOfAllAndOfNoTopics(t *testing.T) {
	h := startHandlers(t)
	for _, tc := range []struct {
		version int16
		topics  []kmsg.MetadataRequestTopic
		want    int
	}{{0, []kmsg.MetadataRequestTopic{}, 2}, {1, nil, 2}, {1, []kmsg.MetadataRequestTopic{}, 0}, {13, nil, 2}, {13, []kmsg.MetadataRequestTopic{}, 0}} {
		req := withVersion(kmsg.NewPtrMetadataRequest(), tc.version)
		req.Topics = tc.topics
		if got := len(h.ask(t, "IN", req).(*kmsg.MetadataResponse).Topics); got != tc.want {
			t.Errorf("version %d, %v: %d topics, want %d", tc.version, tc.topics, got, tc.want)
		}
	}
}

func TestDescribeTopicPartitionsPages(t *testing.T) {
	h := startHandlers(t)
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = 2
	var got []string
	for page := 0; ; page++ {
		if page > 5 {
			t.Fatal("the cursor does not end")
		}
		resp := h.ask(t, "IN", req).(*kmsg.DescribeTopicPartitionsResponse)
		n := 0
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				got = append(got, fmt.Sprintf("%s-%d", *topic.Topic, p.Partition))
				n++
			}
		}
		if n > 2 {
			t.Errorf("page of %d partitions", n)
		}
		if resp.NextCursor == nil {
			break
		}
		req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
	}
	if want := []string{"__consumer_offsets-0", "t-0", "t-1", "t-2"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestDescribeTopicPartitionsShowsELRAndErrors(t *testing.T) {
	h := startHandlers(t)
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	for _, name := range []string{"t", "missing", "bad name"} {
		req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
	}
	resp := h.ask(t, "IN", req).(*kmsg.DescribeTopicPartitionsResponse)
	codes := map[string]int16{}
	for _, topic := range resp.Topics {
		codes[*topic.Topic] = topic.ErrorCode
	}
	if codes["t"] != 0 || codes["missing"] != kerr.UnknownTopicOrPartition.Code || codes["bad name"] != kerr.InvalidTopicException.Code {
		t.Errorf("codes %v", codes)
	}
	i := slices.IndexFunc(resp.Topics, func(x kmsg.DescribeTopicPartitionsResponseTopic) bool { return *x.Topic == "t" })
	p := resp.Topics[i].Partitions
	if !slices.Equal(p[0].EligibleLeaderReplicas, []int32{2}) || !slices.Equal(p[0].LastKnownELR, []int32{2}) || p[1].EligibleLeaderReplicas == nil {
		t.Errorf("ELR %v, last known %v; of a partition without: %v", p[0].EligibleLeaderReplicas, p[0].LastKnownELR, p[1].EligibleLeaderReplicas)
	}
	if p[1].LeaderID != -1 || p[1].ErrorCode != kerr.LeaderNotAvailable.Code || !slices.Equal(p[1].OfflineReplicas, []int32{2}) {
		t.Errorf("partition of a fenced leader: %+v", p[1])
	}
	bad := kmsg.NewPtrDescribeTopicPartitionsRequest()
	bad.Topics = req.Topics[:1]
	bad.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: "t", Partition: -1}
	if r := h.ask(t, "IN", bad).(*kmsg.DescribeTopicPartitionsResponse); r.Topics[0].ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("negative cursor: %+v", r.Topics[0])
	}
}

func TestDescribeConfigs(t *testing.T) {
	h := startHandlers(t, "log.retention.hours=9", "num.io.threads=3", "broker.rack=r1")
	describe := func(kind kmsg.ConfigResourceType, name string, only ...string) kmsg.DescribeConfigsResponseResource {
		req := withVersion(kmsg.NewPtrDescribeConfigsRequest(), 4)
		req.IncludeSynonyms, req.IncludeDocumentation = true, true
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName, res.ConfigNames = kind, name, only
		req.Resources = append(req.Resources, res)
		return h.ask(t, "IN", req).(*kmsg.DescribeConfigsResponse).Resources[0]
	}
	show := func(r kmsg.DescribeConfigsResponseResource) string {
		s := fmt.Sprintf("error %d", r.ErrorCode)
		for _, c := range r.Configs {
			value := "null"
			if c.Value != nil {
				value = *c.Value
			}
			s += fmt.Sprintf("; %s=%s from %d type %d", c.Name, value, c.Source, c.ConfigType)
			for _, y := range c.ConfigSynonyms {
				s += fmt.Sprintf(" <%s %s %d>", y.Name, *y.Value, y.Source)
			}
			if c.ReadOnly {
				s += " read-only"
			}
		}
		return s
	}
	for _, tc := range []struct {
		got  kmsg.DescribeConfigsResponseResource
		want string
	}{
		{
			describe(kmsg.ConfigResourceTypeTopic, "t", "retention.ms"),
			"error 0; retention.ms=5 from 1 type 5 <retention.ms 5 1> <log.retention.ms 7 3> <log.retention.hours 9 4> <log.retention.ms 604800000 5>",
		},
		{describe(kmsg.ConfigResourceTypeTopic, "none"), "error 3"},
		{describe(kmsg.ConfigResourceTypeTopic, "bad name"), "error 17"},
		{
			describe(kmsg.ConfigResourceTypeBroker, "1", "max.connections", "broker.rack"),
			"error 0; broker.rack=r1 from 4 type 2 <broker.rack r1 4> read-only; max.connections=88 from 2 type 3 <max.connections 88 2> <max.connections 77 3> <max.connections 2147483647 5>",
		},
		{
			describe(kmsg.ConfigResourceTypeBroker, ""),
			"error 0; log.retention.ms=7 from 3 type 5 <log.retention.ms 7 3>; max.connections=77 from 3 type 3 <max.connections 77 3>",
		},
		{describe(kmsg.ConfigResourceTypeBroker, "2"), "error 42"},
		{describe(kmsg.ConfigResourceTypeBrokerLogger, "1"), "error 42"},
	} {
		if got := show(tc.got); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
	all := describe(kmsg.ConfigResourceTypeBroker, "1")
	if len(all.Configs) != len(propertyTable) {
		t.Errorf("%d configs of the broker, want %d", len(all.Configs), len(propertyTable))
	}
	for _, c := range all.Configs {
		if c.Documentation == nil || *c.Documentation == "" {
			t.Errorf("%s has no documentation", c.Name)
		}
		if c.IsSensitive && c.Value != nil {
			t.Errorf("%s is sensitive and shown", c.Name)
		}
	}
}

func TestDescribeCluster(t *testing.T) {
	h := startHandlers(t)
	ask := func(listener string, version int16, kind int8, fenced bool) *kmsg.DescribeClusterResponse {
		req := withVersion(kmsg.NewPtrDescribeClusterRequest(), version)
		req.EndpointType, req.IncludeFencedBrokers = kind, fenced
		return h.ask(t, listener, req).(*kmsg.DescribeClusterResponse)
	}
	show := func(r *kmsg.DescribeClusterResponse) string {
		s := fmt.Sprintf("error %d controller %d:", r.ErrorCode, r.ControllerID)
		for _, b := range r.Brokers {
			s += fmt.Sprintf(" %d@%s:%d", b.NodeID, b.Host, b.Port)
			if b.IsFenced {
				s += " fenced"
			}
		}
		return s
	}
	for _, tc := range []struct {
		got  *kmsg.DescribeClusterResponse
		want string
	}{
		{ask("IN", 0, 1, false), "error 0 controller 1: 1@in:1 3@in:1"},
		{ask("OUT", 1, 1, false), "error 0 controller 1: 1@out:2"},
		{ask("IN", 2, 1, true), "error 0 controller 1: 1@in:1 2@in:1 fenced 3@in:1"},
		{ask("IN", 1, 2, false), "error 114 controller 1:"},
		{ask("IN", 1, 7, false), "error 115 controller 1:"},
		{ask("CONTROLLER", 1, 2, false), "error 0 controller 9: 9@c:9093"},
		{ask("CONTROLLER", 0, 1, false), "error 114 controller 1:"},
	} {
		if got := show(tc.got); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}

func TestFindCoordinator(t *testing.T) {
	h := startHandlers(t)
	for v := range int16(7) {
		req := withVersion(kmsg.NewPtrFindCoordinatorRequest(), v)
		req.CoordinatorKey, req.CoordinatorKeys = "g", []string{"g", "h"}
		resp := h.ask(t, "OUT", req).(*kmsg.FindCoordinatorResponse)
		found := resp.Coordinators
		if v < 4 {
			found = []kmsg.FindCoordinatorResponseCoordinator{{
				Key: "g", NodeID: resp.NodeID, Host: resp.Host, Port: resp.Port, ErrorCode: resp.ErrorCode,
			}}
		} else if len(found) != 2 {
			t.Errorf("version %d: %d coordinators", v, len(found))
		}
		for i, c := range found {
			if c.Key != req.CoordinatorKeys[i] || c.NodeID != 1 || c.Host != "out" || c.Port != 2 || c.ErrorCode != 0 {
				t.Errorf("version %d: %+v", v, c)
			}
		}
	}
	for _, kind := range []int8{2, 9} {
		req := withVersion(kmsg.NewPtrFindCoordinatorRequest(), 3)
		req.CoordinatorType = kind
		if resp := h.ask(t, "IN", req).(*kmsg.FindCoordinatorResponse); resp.ErrorCode != kerr.InvalidRequest.Code || resp.NodeID != -1 {
			t.Errorf("type %d: %+v", kind, resp)
		}
	}
}

func TestFindCoordinatorWithoutLeader(t *testing.T) {
	h := startHandlers(t)
	img := testImage()
	img.Topics[offsetsTopic].Partitions[0].Leader = 2 // fenced
	snapshot, err := controller.EncodeSnapshot(img)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.broker.images.Restore(snapshot); err != nil {
		t.Fatal(err)
	}
	req := withVersion(kmsg.NewPtrFindCoordinatorRequest(), 6)
	req.CoordinatorKeys = []string{"g"}
	resp := h.ask(t, "IN", req).(*kmsg.FindCoordinatorResponse)
	if c := resp.Coordinators[0]; c.ErrorCode != kerr.CoordinatorNotAvailable.Code || c.NodeID != -1 || c.Port != -1 || c.ErrorMessage == nil {
		t.Errorf("%+v", c)
	}
}

func TestListenersServeOnlyTheirOwnRequests(t *testing.T) {
	h := startHandlers(t)
	for listener, req := range map[string]kmsg.Request{
		"CONTROLLER": withVersion(kmsg.NewPtrMetadataRequest(), 12),
		"IN":         withVersion(kmsg.NewPtrBrokerHeartbeatRequest(), 1),
		"OUT":        &controller.RegisterLeadersRequest{},
	} {
		nc := h.listeners[listener].dial(t)
		mustWrite(t, nc, frameOf(req, 1))
		if n, err := io.Copy(io.Discard, nc); n != 0 || err != nil && !isReset(err) {
			t.Errorf("%s: %T: %d bytes, %v", listener, req, n, err)
		}
	}
}

// TestEveryOfferedKeyHasAHandler keeps wire's table and the dispatch tables together.
func TestEveryOfferedKeyHasAHandler(t *testing.T) {
	brokers, controllers := brokerTable(), controllerTable()
	for _, a := range wire.APIs() {
		k := kmsg.Key(a.Key)
		if onBroker := brokers[k] != nil; onBroker == a.Internal {
			t.Errorf("%s: internal %v, on broker listeners %v", a.Name, a.Internal, onBroker)
		}
		if controllers[k] != nil && !a.Controller {
			t.Errorf("%s: on controller listeners although the table says no", a.Name)
		}
	}
	own := []kmsg.Key{
		kmsg.ApiVersions, kmsg.DescribeCluster, kmsg.Key(private.ReplicasKey), kmsg.Key(private.LossesKey),
		kmsg.Key(private.QuarantineKey), kmsg.Key(private.RemovalKey), logPrefixKey,
	}
	for k := range controllers {
		if controller.Handles(int16(k)) == slices.Contains(own, k) {
			t.Errorf("key %d: does the controller handle it?", k)
		}
	}
}
