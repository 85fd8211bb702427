package lab

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"cairn/tools/lab/nodes"
)

// opening is how a connection between nodes begins.
func opening(purpose byte, from int64) []byte {
	meta := []byte{1, purpose}
	meta = binary.AppendUvarint(meta, 210)
	meta = binary.AppendVarint(meta, from)
	meta = binary.AppendVarint(meta, 3)
	meta = append(meta, make([]byte, 8)...)
	b := append([]byte(relayPrefix+"2"), 1, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(meta)))
	b = binary.BigEndian.AppendUint32(b, 0)
	return append(b, meta...)
}

func TestSniffKnowsReplication(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   []byte
		want bool
	}{
		{"replication from a broker", opening(purposeMessages, 2), true},
		{"metadata from the controller", opening(purposeMessages, nodes.ControllerID), false},
		{"pings", opening(3, 2), false},
		{"a client", []byte{0, 0, 0, 20, 0, 3, 0, 12}, false},
		{"a client that ends early", []byte{'C', 'A'}, false},
		{"cut in the hello", opening(purposeMessages, 2)[:25], false},
	} {
		r := bufio.NewReaderSize(bytes.NewReader(tc.in), 4096)
		first, got := sniff(r)
		rest, err := io.ReadAll(r)
		if got != tc.want || err != nil || !bytes.Equal(append(first, rest...), tc.in) {
			t.Errorf("%s: %v; %d and %d of %d bytes, %v", tc.name, got, len(first), len(rest), len(tc.in), err)
		}
	}
}

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func TestRelayHoldsReplicationAlone(t *testing.T) {
	n := &nodes.Node{Addr: echo(t), Props: map[string]string{}}
	r, err := newRelay(n)
	if err != nil {
		t.Fatal(err)
	}
	if n.Props["advertised.listeners"] != "CLIENT://"+r.listener.Addr().String() {
		t.Errorf("advertised: %s", n.Props["advertised.listeners"])
	}
	connect := func(first []byte) net.Conn {
		c, err := net.Dial("tcp", r.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		exchange(t, c, first)
		return c
	}
	replication, pings, client := connect(opening(purposeMessages, 2)), connect(opening(3, 2)), connect([]byte("request "))
	r.hold(true)
	exchange(t, pings, []byte("ping"))
	exchange(t, client, []byte("request"))
	if _, err := replication.Write([]byte("entries")); err != nil {
		t.Fatal(err)
	}
	if err := replication.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := replication.Read(make([]byte, 10)); err == nil {
		t.Errorf("%d bytes got through while they were held back", n)
	}
	r.hold(false)
	receive(t, replication, []byte("entries"))
	if err := r.close(); err != nil {
		t.Error(err)
	}
}

func exchange(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	receive(t, c, b)
}

func receive(t *testing.T, c net.Conn, want []byte) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%q, %v; want %q", got, err, want)
	}
}
