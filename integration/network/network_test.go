package network

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	caller = 7 // this process
	callee = 8
)

// dialled is a connection from node caller through the front of node callee, with both ends.
func dialled(t *testing.T, n *Network) (here, there net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	address, err := n.Front(callee, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n.Started(caller, os.Getpid())
	if here, err = net.Dial("tcp", address); err != nil {
		t.Fatal(err)
	}
	if there, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	return here, there
}

func newNetwork(t *testing.T) *Network {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	n := New()
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text+"\n"); err != nil {
		t.Fatal(err)
	}
}

// hears reads a line; a line that does not come within d is "".
func hears(t *testing.T, c net.Conn, d time.Duration) string {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReaderSize(c, 16).ReadString('\n')
	if errors.Is(err, os.ErrDeadlineExceeded) && line == "" {
		return ""
	}
	if err != nil {
		t.Fatalf("after %q: %v", line, err)
	}
	return line[:len(line)-1]
}

const (
	soon  = 5 * time.Second
	never = 100 * time.Millisecond
)

func TestWholeNetworkHandsOn(t *testing.T) {
	n := newNetwork(t)
	here, there := dialled(t, n)
	say(t, here, "ask")
	say(t, there, "answer")
	if got := hears(t, there, soon) + " " + hears(t, here, soon); got != "ask answer" {
		t.Error(got)
	}
	if there, back := n.Sent(caller, callee), n.Sent(All, caller); there != 4 || back != 7 {
		t.Errorf("%d and %d bytes are counted", there, back)
	}
}

func TestCutWorksOneWayAndLosesNothing(t *testing.T) {
	n := newNetwork(t)
	here, there := dialled(t, n)
	n.Cut(caller, callee)
	say(t, here, "ask")
	say(t, there, "unasked")
	if got := hears(t, there, never); got != "" {
		t.Errorf("%q came through a cut", got)
	}
	if got := hears(t, here, soon); got != "unasked" {
		t.Errorf("the way back is whole, and got %q", got)
	}
	n.Heal(false)
	if got := hears(t, there, soon); got != "ask" {
		t.Errorf("after the cut %q arrived", got)
	}
}

func TestSplitHoldsTheEndOfConnections(t *testing.T) {
	n := newNetwork(t)
	here, there := dialled(t, n)
	n.Split(callee)
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	if got := hears(t, there, never); got != "" {
		t.Errorf("heard %q", got)
	}
	n.Heal(false)
	if err := there.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	if _, err := there.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the end did not get through: %v", err)
	}
}

func TestHealWithResetEndsWhatWasCut(t *testing.T) {
	n := newNetwork(t)
	here, there := dialled(t, n)
	n.Cut(caller, callee)
	say(t, here, "gone")
	n.Heal(true)
	if err := there.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	if k, err := there.Read(make([]byte, 8)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes and %v, where a reset is wanted", k, err)
	}
}

func TestSlowWayTakesItsTime(t *testing.T) {
	n := newNetwork(t)
	here, there := dialled(t, n)
	const delay = 150 * time.Millisecond
	n.Slow(caller, callee, Speed{Delay: delay})
	begun := time.Now()
	say(t, here, "ask")
	if got := hears(t, there, soon); got != "ask" || time.Since(begun) < delay {
		t.Errorf("%q after %v", got, time.Since(begun))
	}
}

func TestStrangersAreNotServed(t *testing.T) {
	n := newNetwork(t)
	address, err := n.Front(callee, "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetReadDeadline(time.Now().Add(soon)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a process that is no node was served: %v", err)
	}
}

// TestClosedConnectionHasNoOwner: it is not looked for again and again.
func TestClosedConnectionHasNoOwner(t *testing.T) {
	n := newNetwork(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	served, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = served.Close() }()
	n.Started(caller, os.Getpid())
	if id, known := n.owner(served); !known || id != caller {
		t.Errorf("node %d, %t", id, known)
	}
	abort(c)
	begun := time.Now()
	if id, known := n.owner(served); known || time.Since(begun) > time.Second {
		t.Errorf("node %d, %t after %v", id, known, time.Since(begun))
	}
}
