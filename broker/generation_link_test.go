package broker

import (
	"errors"
	"net"
	"testing"

	"cairn/wire"
)

// TestLeaderConnectionIsDialedByOne: what others do to the connection while one dials leaves that one with a connection that is open.
func TestLeaderConnectionIsDialedByOne(t *testing.T) {
	open := func() *wire.Conn {
		near, far := net.Pipe()
		c := wire.NewConn(near, wire.ConnConfig{})
		t.Cleanup(func() {
			_, _ = c.Close(), far.Close() // some of them are closed already
		})
		return c
	}
	broken := func() *wire.Conn {
		c := open()
		_ = c.Close()
		return c
	}
	for _, row := range []struct {
		name      string
		former    *wire.Conn
		meanwhile func(l *leaderConns, former, other *wire.Conn)
		others    bool // the connection that somebody else has opened is taken
	}{
		{"none before", nil, func(*leaderConns, *wire.Conn, *wire.Conn) {}, false},
		{"a broken one", broken(), func(*leaderConns, *wire.Conn, *wire.Conn) {}, false},
		{"a broken one that another drops", broken(), func(l *leaderConns, former, _ *wire.Conn) { l.drop(1, former) }, false},
		{"a broken one that another replaces", broken(), func(l *leaderConns, _, other *wire.Conn) { l.conns[1] = other }, true},
		{"a broken one that another replaces by one that breaks", broken(), func(l *leaderConns, _, other *wire.Conn) {
			_ = other.Close()
			l.conns[1] = other
		}, false},
	} {
		var l leaderConns
		if row.former != nil {
			if _, err := l.get(1, func() (*wire.Conn, error) { return row.former, nil }); err != nil {
				t.Fatal(err)
			}
		}
		fresh, other := open(), open()
		want := fresh
		if row.others {
			want = other
		}
		got, err := l.get(1, func() (*wire.Conn, error) {
			row.meanwhile(&l, row.former, other)
			return fresh, nil
		})
		if err != nil || got != want || got.Err() != nil {
			t.Errorf("%s: connection %p, want %p; %v", row.name, got, want, err)
		}
		again, err := l.get(1, func() (*wire.Conn, error) { return nil, errors.New("dialed again") })
		if err != nil || again != want {
			t.Errorf("%s: then %p, want %p; %v", row.name, again, want, err)
		}
		l.close()
	}
}
