package lab

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// callLimit bounds one request whose answer waits for nothing.
const callLimit = 10 * time.Second

// maxResponse bounds a response; nothing here asks for more.
const maxResponse = 64 << 20

// conn is one connection to one broker on which requests are sent and answers read as a step wants it, which no client library allows.
// One goroutine may send while another receives.
type conn struct {
	c    net.Conn
	r    *bufio.Reader
	form *kmsg.RequestFormatter
	next int32
}

// dial opens a connection to a broker.
func dial(ctx context.Context, addr string) (*conn, error) {
	d := net.Dialer{Timeout: callLimit}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{c: c, r: bufio.NewReader(c), form: kmsg.NewRequestFormatter(kmsg.FormatterClientID("cairn-lab"))}, nil
}

func (c *conn) close() error { return c.c.Close() }

// send writes a request and returns its correlation id.
func (c *conn) send(req kmsg.Request) (int32, error) {
	c.next++
	if err := c.c.SetWriteDeadline(time.Now().Add(callLimit)); err != nil {
		return 0, err
	}
	_, err := c.c.Write(c.form.AppendRequest(nil, req, c.next))
	return c.next, err
}

// receive reads the next answer, which must be the one to req with the correlation id. The error is io.EOF where the broker has closed.
func (c *conn) receive(req kmsg.Request, id int32, limit time.Duration) (kmsg.Response, error) {
	if err := c.c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	var head [8]byte // size and correlation id
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return nil, err
	}
	size := int32(binary.BigEndian.Uint32(head[:4]))
	if size < 4 || size > maxResponse {
		return nil, fmt.Errorf("response of %d bytes", size)
	}
	body := make([]byte, size-4)
	if _, err := io.ReadFull(c.r, body); err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != id {
		return nil, differs("an answer to request %d on this connection, where that to request %d is next", got, id)
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		if len(body) == 0 || body[0] != 0 {
			return nil, errors.New("response header has tags, which no broker sends")
		}
		body = body[1:]
	}
	return resp, resp.ReadFrom(body)
}

// call sends a request and reads its answer.
func (c *conn) call(req kmsg.Request, limit time.Duration) (kmsg.Response, error) {
	id, err := c.send(req)
	if err != nil {
		return nil, err
	}
	return c.receive(req, id, limit)
}

// ask opens a connection for one request.
func ask[R kmsg.Response](ctx context.Context, addr string, req kmsg.Request, limit time.Duration) (r R, err error) {
	c, err := dial(ctx, addr)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	stop := context.AfterFunc(ctx, func() { _ = c.c.SetReadDeadline(time.Unix(1, 0)) }) // wakes the read; close follows
	defer stop()
	resp, err := c.call(req, limit)
	if err != nil {
		return r, err
	}
	return resp.(R), nil
}
