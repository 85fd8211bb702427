package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cairn/broker"
)

// SIGTERM ends a node that is still opening its store, however long that takes.
func TestStopDuringStart(t *testing.T) {
	for _, tc := range []struct {
		name  string
		takes time.Duration
		want  error
	}{
		{"a start that takes long", time.Hour, context.Canceled},
		{"a start that comes to an end", time.Second, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				begun := time.Now()
				node, err := untilStopped(ctx, func() (*broker.Node, error) {
					time.Sleep(tc.takes) // of the bubble's clock
					return new(broker.Node), nil
				})
				if !errors.Is(err, tc.want) || (node == nil) != (tc.want != nil) || time.Since(begun) > startGrace {
					t.Errorf("%v, %v after %v", node, err, time.Since(begun))
				}
				time.Sleep(tc.takes) // start ends with the bubble
			})
		})
	}
}

// TestStartSaysWhatIsTaken: an address of another process.
func TestStartSaysWhatIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().String()
	code, _, said := runLine(t, "start --override log.dirs="+t.TempDir()+" --override listeners=PLAINTEXT://"+at)
	if code != exitFailed || !strings.Contains(said, at) || !strings.Contains(said, "does a broker run there already?") {
		t.Errorf("exit code %d: %s", code, said)
	}
}
