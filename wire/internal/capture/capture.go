package capture

import (
	"bufio"
	"errors"
	"net"
	"sync"

	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Frame is one frame of a session, without its length prefix.
type Frame struct {
	Request bool
	Bytes   []byte
}

// Broker listens on a loopback port until Close.
type Broker struct {
	ln net.Listener
	wg sync.WaitGroup

	// Produced gets each record set that a produce request carried. It holds 16; whoever sends more must take them.
	Produced chan []byte

	mu     sync.Mutex
	frames []Frame           // guarded by mu
	conns  map[net.Conn]bool // guarded by mu
	// FetchRecords is what every fetch at offset 0 returns. Set before the first connection.
	FetchRecords []byte
}

// Listen starts a Broker.
func Listen(addr string) (*Broker, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	b := &Broker{ln: ln, Produced: make(chan []byte, 16), conns: map[net.Conn]bool{}}
	b.wg.Go(b.accept)
	return b, nil
}

// Addr is the address it listens on.
func (b *Broker) Addr() *net.TCPAddr { return b.ln.Addr().(*net.TCPAddr) }

// Close ends all connections and waits for them.
func (b *Broker) Close() error {
	err := b.ln.Close()
	b.mu.Lock()
	for c := range b.conns {
		err = errors.Join(err, c.Close())
	}
	b.mu.Unlock()
	b.wg.Wait()
	return err
}

// Frames returns the frames so far, in the order they came and went.
func (b *Broker) Frames() []Frame {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Frame(nil), b.frames...)
}

func (b *Broker) accept() {
	for {
		c, err := b.ln.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		b.conns[c] = true
		b.mu.Unlock()
		b.wg.Go(func() { b.serve(c) })
	}
}

func (b *Broker) serve(c net.Conn) {
	defer func() {
		b.mu.Lock()
		delete(b.conns, c)
		b.mu.Unlock()
		_ = c.Close()
	}()
	r := bufio.NewReader(c)
	for {
		frame, err := wire.ReadFrame(r, 16<<20, nil)
		if err != nil {
			return
		}
		out := b.answer(frame)
		b.mu.Lock()
		b.frames = append(b.frames, Frame{true, frame})
		if out != nil {
			b.frames = append(b.frames, Frame{false, out[4:]})
		}
		b.mu.Unlock()
		if out == nil {
			return
		}
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

// answer returns the response frame, nil to close the connection.
func (b *Broker) answer(frame []byte) []byte {
	h, req, err := wire.ParseRequest(frame)
	if errors.Is(err, wire.ErrUnsupportedVersion) && h.Key == int16(kmsg.ApiVersions) {
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.ErrorCode = 35
		return wire.AppendResponse(nil, h, resp)
	}
	if err != nil {
		return nil
	}
	var resp kmsg.Response
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest:
		resp = apiVersions()
	case *kmsg.MetadataRequest:
		resp = b.metadata(req)
	case *kmsg.InitProducerIDRequest:
		r := kmsg.NewPtrInitProducerIDResponse()
		r.ProducerID, r.ProducerEpoch = 4711, 3
		resp = r
	case *kmsg.ProduceRequest:
		resp = b.produce(req)
	case *kmsg.FetchRequest:
		return b.fetch(h, req)
	case *kmsg.ListOffsetsRequest:
		resp = listOffsets(req)
	default:
		return nil
	}
	return wire.AppendResponse(nil, h, resp)
}

func apiVersions() kmsg.Response {
	r := kmsg.NewPtrApiVersionsResponse()
	for _, a := range wire.APIs() {
		if a.Internal {
			continue
		}
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.Key, a.AnnouncedMin, a.Max
		r.ApiKeys = append(r.ApiKeys, k)
	}
	return r
}

var topicID = [16]byte{0: 1, 15: 7}

func (b *Broker) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	r := kmsg.NewPtrMetadataResponse()
	broker := kmsg.NewMetadataResponseBroker()
	broker.NodeID, broker.Host, broker.Port = 1, "127.0.0.1", int32(b.Addr().Port)
	r.Brokers = append(r.Brokers, broker)
	r.ControllerID = 1
	r.ClusterID = kmsg.StringPtr("capture")
	for _, t := range req.Topics {
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic, topic.TopicID = t.Topic, topicID
		if topic.Topic == nil {
			topic.Topic = kmsg.StringPtr("golden")
		}
		p := kmsg.NewMetadataResponseTopicPartition()
		p.Leader, p.LeaderEpoch, p.Replicas, p.ISR = 1, 0, []int32{1}, []int32{1}
		topic.Partitions = append(topic.Partitions, p)
		r.Topics = append(r.Topics, topic)
	}
	return r
}

func (b *Broker) produce(req *kmsg.ProduceRequest) kmsg.Response {
	r := kmsg.NewPtrProduceResponse()
	for _, t := range req.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			b.Produced <- append([]byte(nil), p.Records...)
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition = p.Partition
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}

func (b *Broker) fetch(h wire.Header, req *kmsg.FetchRequest) []byte {
	r := &wire.FetchResponse{}
	for _, t := range req.Topics {
		ft := wire.FetchTopic{Topic: t.Topic, TopicID: t.TopicID}
		for _, p := range t.Partitions {
			fp := wire.NewFetchPartition(p.Partition, 0)
			fp.HighWatermark, fp.LastStableOffset, fp.LogStartOffset = 1000, 1000, 0
			if p.FetchOffset == 0 {
				fp.Records = [][]byte{b.FetchRecords}
			}
			ft.Partitions = append(ft.Partitions, fp)
		}
		r.Topics = append(r.Topics, ft)
	}
	var out []byte
	for _, part := range wire.EncodeFetchResponse(h, r) {
		out = append(out, part...)
	}
	return out
}

func listOffsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	r := kmsg.NewPtrListOffsetsResponse()
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch = p.Partition, 0, 0
			rt.Partitions = append(rt.Partitions, rp)
		}
		r.Topics = append(r.Topics, rt)
	}
	return r
}
