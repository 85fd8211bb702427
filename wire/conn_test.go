package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is the other end of a Conn's connection: it reads requests and sends what the test tells it to.
type peer struct {
	t  *testing.T
	nc net.Conn
	r  *bufio.Reader
}

func newPeer(t *testing.T, cfg ConnConfig) (*Conn, *peer) {
	a, b := net.Pipe()
	c := NewConn(a, cfg)
	t.Cleanup(func() { _ = c.Close(); _ = b.Close() })
	return c, &peer{t, b, bufio.NewReader(b)}
}

// request reads the next request, which must be a Metadata request for one topic, and returns its id and topic.
func (p *peer) request() (Header, string) {
	p.t.Helper()
	frame, err := ReadFrame(p.r, 1<<20, nil)
	if err != nil {
		p.t.Error(err)
		return Header{}, ""
	}
	h, req, err := ParseRequest(frame)
	if err != nil {
		p.t.Error(err)
		return h, ""
	}
	return h, *req.(*kmsg.MetadataRequest).Topics[0].Topic
}

func (p *peer) respond(h Header, topic string) {
	p.t.Helper()
	resp := kmsg.NewPtrMetadataResponse()
	resp.Topics = append(resp.Topics, kmsg.MetadataResponseTopic{Topic: &topic})
	if _, err := p.nc.Write(AppendResponse(nil, h, resp)); err != nil {
		p.t.Error(err)
	}
}

func metadataFor(version int16, topic string) kmsg.Request {
	req := kmsg.NewPtrMetadataRequest()
	req.SetVersion(version)
	req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &topic})
	return req
}

func topicOf(resp kmsg.Response) string { return *resp.(*kmsg.MetadataResponse).Topics[0].Topic }

func TestConnRoundTrip(t *testing.T) {
	for _, version := range []int16{1, 8, 9, 13} {
		c, p := newPeer(t, ConnConfig{ClientID: "node-1"})
		done := make(chan struct{})
		go func() {
			defer close(done)
			h, topic := p.request()
			if h.ClientID != "node-1" || h.Version != version {
				t.Errorf("header %+v", h)
			}
			p.respond(h, topic+"!")
		}()
		resp, err := c.RoundTrip(t.Context(), metadataFor(version, "t"))
		if err != nil || topicOf(resp) != "t!" {
			t.Errorf("v%d: %v, %v", version, resp, err)
		}
		<-done
	}
}

func TestConnPipelines(t *testing.T) {
	const n = 20
	c, p := newPeer(t, ConnConfig{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			topic := string(rune('a' + i))
			resp, err := c.RoundTrip(t.Context(), metadataFor(9, topic))
			if err != nil || topicOf(resp) != topic {
				t.Errorf("%s: %v, %v", topic, resp, err)
			}
		})
	}
	var hs []Header
	var topics []string
	for range n { // all requests come before the first response
		h, topic := p.request()
		hs, topics = append(hs, h), append(topics, topic)
	}
	for i := range n {
		p.respond(hs[i], topics[i])
	}
	wg.Wait()
}

func TestConnBoundsRequestsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newPeer(t, ConnConfig{MaxInFlight: 2})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := c.RoundTrip(t.Context(), metadataFor(9, "t")); err != nil {
					t.Error(err)
				}
			})
		}
		h1, _ := p.request()
		h2, _ := p.request()
		synctest.Wait()
		if n := len(c.queue); n != 0 {
			t.Errorf("%d requests queued beside two in flight", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.RoundTrip(ctx, metadataFor(9, "late")); !errors.Is(err, ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("fourth request: %v", err)
		}
		p.respond(h1, "t")
		h3, _ := p.request()
		p.respond(h2, "t")
		p.respond(h3, "t")
		wg.Wait()
	})
}

func TestConnGoesOnAfterAnAbandonedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newPeer(t, ConnConfig{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		got := make(chan error)
		go func() { _, err := c.RoundTrip(ctx, metadataFor(9, "slow")); got <- err }()
		h1, _ := p.request()
		if err := <-got; !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNotSent) {
			t.Errorf("abandoned request: %v", err)
		}
		go func() {
			resp, err := c.RoundTrip(t.Context(), metadataFor(9, "next"))
			if err == nil && topicOf(resp) != "next" {
				err = errors.New("response of another request")
			}
			got <- err
		}()
		h2, _ := p.request()
		p.respond(h1, "slow")
		p.respond(h2, "next")
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}

func TestConnClosesWhenTheOldestRequestIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, p := newPeer(t, ConnConfig{ResponseTimeout: 5 * time.Second})
		start := time.Now()
		time.Sleep(time.Minute) // an idle connection stays open
		if c.Err() != nil {
			t.Fatal(c.Err())
		}
		got := make(chan error, 2)
		send := func() { _, err := c.RoundTrip(t.Context(), metadataFor(9, "t")); got <- err }
		go send()
		h1, _ := p.request()
		time.Sleep(4 * time.Second)
		go send()
		_, _ = p.request()
		p.respond(h1, "t")
		if err := <-got; err != nil {
			t.Error(err)
		}
		if err := <-got; !errors.Is(err, ErrConnClosed) || errors.Is(err, ErrNotSent) {
			t.Errorf("overdue request: %v", err)
		}
		if d := time.Since(start); d != 69*time.Second {
			t.Errorf("closed after %v", d)
		}
		<-c.Done()
		if _, err := c.RoundTrip(t.Context(), metadataFor(9, "t")); !errors.Is(err, ErrConnClosed) || !errors.Is(err, ErrNotSent) {
			t.Errorf("request on a closed connection: %v", err)
		}
	})
}

func TestConnClosesWhenThePeerDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := newPeer(t, ConnConfig{WriteTimeout: 3 * time.Second})
		start := time.Now()
		if _, err := c.RoundTrip(t.Context(), metadataFor(9, "t")); !errors.Is(err, ErrConnClosed) {
			t.Error(err)
		}
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("closed after %v", d)
		}
	})
}

func TestConnNoticesTheEndOfAnIdleConnection(t *testing.T) {
	c, p := newPeer(t, ConnConfig{})
	_ = p.nc.Close()
	<-c.Done()
	if !errors.Is(c.Err(), ErrConnClosed) {
		t.Error(c.Err())
	}
}

func TestConnCloseEndsRequests(t *testing.T) {
	c, p := newPeer(t, ConnConfig{})
	got := make(chan error)
	go func() { _, err := c.RoundTrip(t.Context(), metadataFor(9, "t")); got <- err }()
	p.request()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-got; !errors.Is(err, ErrConnClosed) || errors.Is(err, ErrNotSent) {
		t.Error(err)
	}
}

func TestConnRefusesBadResponses(t *testing.T) {
	tests := map[string]func(h Header) []byte{
		"another id":        func(h Header) []byte { return []byte{0, 0, 0, 5, 0, 0, 0, 77, 0} },
		"no id":             func(h Header) []byte { return []byte{0, 0, 0, 2, 0, 0} },
		"negative length":   func(h Header) []byte { return []byte{0xff, 0, 0, 2, 0, 0} },
		"longer than bound": func(h Header) []byte { return []byte{0, 0x10, 0, 0, 0, 0} },
	}
	for name, bad := range tests {
		c, p := newPeer(t, ConnConfig{MaxFrame: 1000})
		got := make(chan error)
		go func() { _, err := c.RoundTrip(t.Context(), metadataFor(9, "t")); got <- err }()
		h, _ := p.request()
		// the Conn may close while the end of it is written
		if _, err := p.nc.Write(bad(h)); err != nil && c.Err() == nil {
			t.Error(err)
		}
		if err := <-got; !errors.Is(err, ErrConnClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, p := newPeer(t, ConnConfig{})
	got := make(chan error)
	go func() { _, err := c.RoundTrip(t.Context(), metadataFor(9, "t")); got <- err }()
	h, _ := p.request()
	short := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 6}, uint32(h.CorrelationID))
	if _, err := p.nc.Write(append(short, 0, 1)); err != nil {
		t.Error(err)
	}
	if err := <-got; !errors.Is(err, ErrMalformed) {
		t.Errorf("short body: %v", err)
	}
}

func TestConnRefusesUnasked(t *testing.T) {
	c, p := newPeer(t, ConnConfig{})
	if _, err := p.nc.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0}); err != nil {
		t.Error(err)
	}
	<-c.Done()
}
