package broker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"cairn/raftgroup"
	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

// testServer is a server with a dispatch function of the test's.
type testServer struct {
	*server
	address string
}

// testServerConfig has generous limits; tests lower some.
func testServerConfig(dispatch func(*request)) serverConfig {
	apis, err := wire.NewTable()
	if err != nil {
		panic(err)
	}
	return serverConfig{
		Dispatch: dispatch, APIs: apis, Bounds: func() connBounds { return connBounds{total: 100, perIP: 100} },
		ServeRaft: func(net.Conn, *bufio.Reader) error { return io.EOF },
		Memory:    newMemory(1 << 20), Metrics: newMetrics(), MaxFrame: 1 << 20, MaxIdle: time.Minute, SendBuffer: -1, ReceiveBuffer: -1, Log: zap.NewNop(),
	}
}

func startTestServer(t *testing.T, cfg serverConfig) testServer {
	t.Helper()
	s := newServer(cfg)
	l, err := s.listen("TEST", "127.0.0.1:0", false, false)
	if err != nil {
		t.Fatal(err)
	}
	close(s.opened)
	s.accept(l)
	return testServer{s, l.Addr().String()}
}

func (s testServer) dial(t *testing.T) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return nc
}

// frameOf is a request as a client sends it.
func frameOf(req kmsg.Request, correlation int32) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, correlation)
}

func apiVersionsFrame(correlation int32) []byte {
	req := kmsg.NewPtrApiVersionsRequest()
	req.SetVersion(0)
	return frameOf(req, correlation)
}

// readCorrelation reads one response and returns its correlation id.
func readCorrelation(t *testing.T, r io.Reader) int32 {
	t.Helper()
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		t.Fatalf("response: %v", err)
	}
	if _, err := io.CopyN(io.Discard, r, int64(binary.BigEndian.Uint32(head[:]))-4); err != nil {
		t.Fatal(err)
	}
	return int32(binary.BigEndian.Uint32(head[4:]))
}

func mustWrite(t *testing.T, w io.Writer, b []byte) {
	t.Helper()
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
}

// answerVersions answers like a broker without anything.
func answerVersions(r *request) { r.reply(kmsg.NewPtrApiVersionsResponse()) }

func TestAbuseClosesItsOwnConnectionOnly(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := startTestServer(t, testServerConfig(answerVersions))
	defer s.drain(t.Context())
	good := s.dial(t)
	defer good.Close()
	prefix := func(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	header := func(key, version int16) []byte {
		b := binary.BigEndian.AppendUint16(nil, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		return append(prefix(10), append(b, 0, 0, 0, 1, 0xff, 0xff)...)
	}
	for i, tc := range []struct {
		name string
		send []byte
	}{
		{"negative length", prefix(-1)},
		{"most negative length", prefix(-1 << 31)},
		{"length above the limit", prefix(1<<20 + 1)},
		{"largest length", prefix(1<<31 - 1)},
		{"empty frame", prefix(0)},
		{"frame shorter than a header", append(prefix(3), 1, 2, 3)},
		{"unknown key", header(999, 0)},
		{"negative key", header(-1, 0)},
		{"unsupported version", header(int16(kmsg.Metadata), 99)},
		{"produce that is too old", header(int16(kmsg.Produce), 0)},
		{"truncated body", header(int16(kmsg.Metadata), 4)},
		{"text", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")},
		{"raft preface on a client listener", raftgroup.Preface[:]},
		{"broken preface", append(bytes.Clone(raftgroup.Preface[:4]), 0, 0, 0, 0)},
		{"a good request, then garbage", append(apiVersionsFrame(1), prefix(-5)...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bad := s.dial(t)
			mustWrite(t, bad, tc.send)
			if _, err := io.Copy(io.Discard, bad); err != nil && !isReset(err) {
				t.Errorf("the connection is not closed: %v", err)
			}
			mustWrite(t, good, apiVersionsFrame(int32(i)))
			if got := readCorrelation(t, good); got != int32(i) {
				t.Errorf("the other connection got %d, want %d", got, i)
			}
			_ = bad.Close()
		})
	}
	eventually(t, func() *bool { // the last one is given back behind its answer
		free := s.memory.used() == 0
		if !free {
			return nil
		}
		return &free
	})
}

func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout()
}

func TestHalfSentFrameHoldsNothingAfterItsClientHasGone(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := startTestServer(t, testServerConfig(answerVersions))
	nc := s.dial(t)
	mustWrite(t, nc, binary.BigEndian.AppendUint32(nil, 1<<19))
	mustWrite(t, nc, make([]byte, 1000))
	_ = nc.Close()
	s.drain(t.Context())
	if used := s.memory.used(); used != 0 {
		t.Errorf("%d bytes still taken", used)
	}
}

func TestResponsesLeaveInRequestOrder(t *testing.T) {
	defer goleak.VerifyNone(t)
	const n = 50
	var held []*request
	s := startTestServer(t, testServerConfig(func(r *request) {
		held = append(held, r)
		if len(held) < n {
			return
		}
		for i := n - 1; i >= 0; i-- { // the last one first; every fifth has no answer
			switch {
			case i%5 == 4:
				held[i].noReply()
			case i%5 == 3:
				held[i].replyBuffers(net.Buffers{{0, 0, 0, 4}, binary.BigEndian.AppendUint32(nil, uint32(i))})
			default:
				held[i].reply(kmsg.NewPtrApiVersionsResponse())
			}
		}
	}))
	defer s.drain(t.Context())
	nc := s.dial(t)
	defer nc.Close()
	var all []byte
	for i := range n {
		all = append(all, apiVersionsFrame(int32(i))...)
	}
	mustWrite(t, nc, all)
	r := bufio.NewReader(nc)
	for i := range n {
		if i%5 == 4 {
			continue
		}
		if got := readCorrelation(t, r); got != int32(i) {
			t.Fatalf("response %d is for request %d", i, got)
		}
	}
}

func TestAnsweringTwicePanics(t *testing.T) {
	panicked := make(chan any, 1)
	s := startTestServer(t, testServerConfig(func(r *request) {
		r.noReply()
		defer func() { panicked <- recover() }()
		r.reply(kmsg.NewPtrApiVersionsResponse())
	}))
	defer s.drain(t.Context())
	nc := s.dial(t)
	defer nc.Close()
	mustWrite(t, nc, apiVersionsFrame(1))
	if <-panicked == nil {
		t.Error("no panic")
	}
}

func TestCloseConnectionAfterNoReply(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := startTestServer(t, testServerConfig(func(r *request) {
		r.noReply()
		r.closeConnection(errors.New("acks=0 batch lost"))
	}))
	nc := s.dial(t)
	mustWrite(t, nc, apiVersionsFrame(1))
	if _, err := io.Copy(io.Discard, nc); err != nil && !isReset(err) {
		t.Error(err)
	}
	s.drain(t.Context())
	if s.memory.used() != 0 {
		t.Error("memory still taken")
	}
}

// pipeConn runs one connection over a pipe, for tests with a fake clock.
func pipeConn(t *testing.T, cfg serverConfig) (client net.Conn, s *server, done <-chan struct{}) {
	t.Helper()
	s = newServer(cfg)
	close(s.opened)
	here, there := net.Pipe()
	c := newConn(s, &listener{name: "PIPE"}, there, "pipe")
	if err := s.limits.admit("pipe"); err != nil {
		t.Fatal(err)
	}
	c.counted = true
	s.conns[c] = struct{}{}
	ended := make(chan struct{})
	s.wg.Go(func() { c.serve(); close(ended) })
	return here, s, ended
}

func TestIdleConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testServerConfig(answerVersions)
		cfg.MaxIdle = 10 * time.Minute
		nc, _, done := pipeConn(t, cfg)
		start := time.Now()
		time.Sleep(5 * time.Minute)
		mustWrite(t, nc, apiVersionsFrame(1))
		readCorrelation(t, nc)
		<-done
		if idle := time.Since(start); idle < 15*time.Minute || idle > 17*time.Minute {
			t.Errorf("closed after %v, 5 minutes of them before the last request", idle)
		}
	})
}

func TestConnectionWithAParkedRequestIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testServerConfig(func(r *request) {
			time.AfterFunc(time.Hour, func() { r.reply(kmsg.NewPtrApiVersionsResponse()) })
		})
		nc, _, done := pipeConn(t, cfg)
		mustWrite(t, nc, apiVersionsFrame(7))
		if got := readCorrelation(t, nc); got != 7 {
			t.Errorf("got %d", got)
		}
		_ = nc.Close()
		<-done
	})
}

func TestFrameMustArriveInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nc, s, done := pipeConn(t, testServerConfig(answerVersions))
		start := time.Now()
		mustWrite(t, nc, binary.BigEndian.AppendUint32(nil, 1000))
		stopped := make(chan struct{})
		go func() { // one byte a second: progress, but too little
			defer close(stopped)
			for {
				if _, err := nc.Write([]byte{0}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		<-done
		if d := time.Since(start); d != frameGrace {
			t.Errorf("closed after %v, want %v", d, frameGrace)
		}
		if s.memory.used() != 0 {
			t.Error("memory still taken")
		}
		<-stopped
	})
}

func TestReaderStopsAtTheInFlightBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var held []*request
		nc, _, done := pipeConn(t, testServerConfig(func(r *request) {
			mu.Lock()
			defer mu.Unlock()
			held = append(held, r)
		}))
		go func() {
			for i := range int32(maxInFlight + 10) {
				if _, err := nc.Write(apiVersionsFrame(i)); err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		if len(held) != maxInFlight {
			t.Fatalf("%d requests in flight, want %d", len(held), maxInFlight)
		}
		held[0].reply(kmsg.NewPtrApiVersionsResponse())
		readCorrelation(t, nc)
		synctest.Wait()
		if len(held) != maxInFlight+1 {
			t.Errorf("%d requests after one answer, want %d", len(held), maxInFlight+1)
		}
		_ = nc.Close()
		for _, r := range held[1:] { // a client that has gone is noticed once its reader goes on
			r.noReply()
		}
		<-done
	})
}

func TestReaderStopsAtTheUnsentBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dispatched atomic.Int32
		big := make([]byte, maxUnsentBytes/2)
		binary.BigEndian.PutUint32(big, uint32(len(big)-4))
		nc, _, done := pipeConn(t, testServerConfig(func(r *request) {
			dispatched.Add(1)
			r.replyBuffers(net.Buffers{big})
		}))
		go func() {
			for i := range int32(20) {
				if _, err := nc.Write(apiVersionsFrame(i)); err != nil {
					return
				}
			}
		}()
		synctest.Wait() // nobody reads the answers
		if n := dispatched.Load(); n > 4 {
			t.Errorf("%d answers of %d bytes are waiting", n, len(big))
		}
		_ = nc.Close()
		<-done
	})
}

func TestRequestWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testServerConfig(nil)
		cfg.Memory = newMemory(4 * 100 << 10)
		var mu sync.Mutex
		var held []*request
		cfg.Dispatch = func(r *request) {
			mu.Lock()
			defer mu.Unlock()
			held = append(held, r)
		}
		nc, _, done := pipeConn(t, cfg)
		large := kmsg.NewPtrApiVersionsRequest()
		large.SetVersion(3)
		large.ClientSoftwareName = string(bytes.Repeat([]byte("x"), 300<<10))
		go func() {
			for i := range int32(3) {
				if _, err := nc.Write(frameOf(large, i)); err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		if len(held) != 1 {
			t.Fatalf("%d requests in memory, want 1", len(held))
		}
		held[0].releaseFrame() // as a request does that waits for replication
		synctest.Wait()
		if len(held) != 2 {
			t.Fatalf("%d requests after the first gave its frame back, want 2", len(held))
		}
		_ = nc.Close()
		for _, r := range held {
			r.noReply()
		}
		<-done
		if cfg.Memory.used() != 0 || cfg.Memory.waiting() != 0 {
			t.Errorf("%d bytes used, %d waiting", cfg.Memory.used(), cfg.Memory.waiting())
		}
	})
}

func TestRaftPrefaceHandsTheConnectionOver(t *testing.T) {
	defer goleak.VerifyNone(t)
	got := make(chan string, 1)
	cfg := testServerConfig(answerVersions)
	cfg.ServeRaft = func(nc net.Conn, br *bufio.Reader) error {
		b := make([]byte, 5)
		_, err := io.ReadFull(br, b)
		got <- string(b)
		return errors.Join(err, nc.Close())
	}
	s := newServer(cfg)
	l, err := s.listen("CONTROLLER", "127.0.0.1:0", true, true)
	if err != nil {
		t.Fatal(err)
	}
	s.accept(l)
	ts := testServer{s, l.Addr().String()}
	nc := ts.dial(t)
	mustWrite(t, nc, append(bytes.Clone(raftgroup.Preface[:]), "hello"...))
	if b := <-got; b != "hello" {
		t.Errorf("got %q", b)
	}
	s.drain(t.Context())
}

func TestClientsOfABrokerListenerWaitUntilItIsOpened(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := newServer(testServerConfig(answerVersions))
	l, err := s.listen("TEST", "127.0.0.1:0", false, false)
	if err != nil {
		t.Fatal(err)
	}
	s.accept(l)
	ts := testServer{s, l.Addr().String()}
	nc := ts.dial(t)
	mustWrite(t, nc, apiVersionsFrame(3))
	close(s.opened)
	if got := readCorrelation(t, nc); got != 3 {
		t.Errorf("got %d", got)
	}
	s.drain(t.Context())
}

func TestDrainAnswersWhatIsUnderWayAndClosesTheRest(t *testing.T) {
	defer goleak.VerifyNone(t)
	arrived := make(chan *request, 1)
	s := startTestServer(t, testServerConfig(func(r *request) { arrived <- r }))
	busy, idle := s.dial(t), s.dial(t)
	mustWrite(t, busy, apiVersionsFrame(9))
	r := <-arrived
	drained := make(chan struct{})
	go func() { s.drain(t.Context()); close(drained) }()
	if _, err := io.Copy(io.Discard, idle); err != nil && !isReset(err) {
		t.Errorf("idle connection: %v", err)
	}
	select {
	case <-drained:
		t.Fatal("drained although a request is not answered")
	default:
	}
	r.reply(kmsg.NewPtrApiVersionsResponse())
	if got := readCorrelation(t, busy); got != 9 {
		t.Errorf("got %d", got)
	}
	<-drained
	if _, err := net.Dial("tcp", s.address); err == nil {
		t.Error("the listener is still open")
	}
}

func TestConnectionLimits(t *testing.T) {
	defer goleak.VerifyNone(t)
	cfg := testServerConfig(answerVersions)
	cfg.Bounds = func() connBounds {
		return connBounds{total: 100, perIP: 1, overrides: map[string]int{"127.0.0.1": 2}}
	}
	s := startTestServer(t, cfg)
	conns := []net.Conn{s.dial(t), s.dial(t)}
	for i, nc := range conns {
		mustWrite(t, nc, apiVersionsFrame(int32(i)))
		readCorrelation(t, nc)
	}
	refused := s.dial(t)
	if _, err := io.Copy(io.Discard, refused); err != nil && !isReset(err) {
		t.Errorf("third connection: %v", err)
	}
	s.drain(t.Context())
	if len(s.limits.perIP) != 0 || s.limits.total != 0 {
		t.Errorf("still counted: %v, %d", s.limits.perIP, s.limits.total)
	}
}

func TestRaftConnectionsAreBeyondTheLimits(t *testing.T) {
	defer goleak.VerifyNone(t)
	cfg := testServerConfig(answerVersions)
	cfg.Bounds = func() connBounds { return connBounds{total: 1, perIP: 1} }
	served := make(chan struct{}, 2)
	cfg.ServeRaft = func(nc net.Conn, br *bufio.Reader) error {
		served <- struct{}{}
		_, err := br.ReadByte()
		return err
	}
	s := newServer(cfg)
	l, err := s.listen("IN", "127.0.0.1:0", false, true)
	if err != nil {
		t.Fatal(err)
	}
	close(s.opened)
	s.accept(l)
	ts := testServer{s, l.Addr().String()}
	mustWrite(t, ts.dial(t), raftgroup.Preface[:])
	<-served
	client := ts.dial(t) // the first client: Raft's connection does not count
	mustWrite(t, client, apiVersionsFrame(1))
	readCorrelation(t, client)
	second := ts.dial(t)
	mustWrite(t, second, apiVersionsFrame(1))
	if n, err := io.Copy(io.Discard, second); n != 0 || err != nil && !isReset(err) {
		t.Errorf("second client: %d bytes, %v", n, err)
	}
	mustWrite(t, ts.dial(t), raftgroup.Preface[:]) // beyond the limit
	<-served
	s.drain(t.Context())
	if len(s.limits.perIP) != 0 || s.limits.total != 0 {
		t.Errorf("still counted: %v, %d", s.limits.perIP, s.limits.total)
	}
}

func TestConnLimits(t *testing.T) {
	bounds := connBounds{total: 3, perIP: 2, overrides: map[string]int{"b": 0}}
	l := newConnLimits(func() connBounds { return bounds })
	for i, tc := range []struct {
		host string
		ok   bool
	}{{"a", true}, {"a", true}, {"a", false}, {"b", false}, {"c", true}, {"d", false}} {
		if err := l.admit(tc.host); (err == nil) != tc.ok {
			t.Errorf("%d: %s: %v", i, tc.host, err)
		}
	}
	l.leave("a")
	if err := l.admit("d"); err != nil {
		t.Error(err)
	}
	bounds.total = 10 // dynamic
	if err := l.admit("a"); err != nil {
		t.Error(err)
	}
}

func TestLogLimiter(t *testing.T) {
	l := newLogLimiter(time.Second)
	now := time.Unix(0, 0)
	for i, want := range []string{"0 true", "0 false", "0 false"} {
		if n, ok := l.allow("a", now); fmt.Sprint(n, ok) != want {
			t.Errorf("%d: %d %v", i, n, ok)
		}
	}
	if _, ok := l.allow("b", now); !ok {
		t.Error("kinds share a budget")
	}
	if n, ok := l.allow("a", now.Add(time.Second)); n != 2 || !ok {
		t.Errorf("got %d %v", n, ok)
	}
}

// BenchmarkConnRoundTrips measures what a connection costs without a handler.
func BenchmarkConnRoundTrips(b *testing.B) {
	s := newServer(testServerConfig(answerVersions))
	l, err := s.listen("TEST", "127.0.0.1:0", false, false)
	if err != nil {
		b.Fatal(err)
	}
	close(s.opened)
	s.accept(l)
	defer s.drain(b.Context())
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	frame, buf := apiVersionsFrame(1), make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := nc.Write(frame); err != nil {
			b.Fatal(err)
		}
		if _, err := nc.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
}
