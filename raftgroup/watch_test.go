package raftgroup

import (
	"bufio"
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// answer serves pings on c, each after a delay of its own, until the delays run out.
func answer(c net.Conn, delays ...time.Duration) {
	r := bufio.NewReader(c)
	for {
		if _, err := readFrameHeader(r); err != nil {
			return
		}
		if len(delays) == 0 {
			continue
		}
		time.Sleep(delays[0])
		delays = delays[1:]
		if _, err := c.Write(appendFrameHeader(nil, frameHeader{kind: framePong})); err != nil {
			return
		}
	}
}

func TestAPeerIsLostWhenItsAnswersStop(t *testing.T) {
	const timeout = 500 * time.Millisecond
	for name, tc := range map[string]struct {
		delays []time.Duration
		want   time.Duration // from the start to the verdict
	}{
		"never answers":         {nil, 550 * time.Millisecond},
		"answers twice":         {[]time.Duration{0, 0}, 125*time.Millisecond + 550*time.Millisecond},
		"answers at the last":   {[]time.Duration{520 * time.Millisecond}, 520*time.Millisecond + 550*time.Millisecond},
		"answers, but too late": {[]time.Duration{600 * time.Millisecond}, 550 * time.Millisecond},
		"slow and then no more": {[]time.Duration{400 * time.Millisecond, 400 * time.Millisecond}, 800*time.Millisecond + 550*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := net.Pipe()
				var wg sync.WaitGroup
				defer wg.Wait()
				defer b.Close()
				wg.Go(func() { answer(b, tc.delays...) })
				w := &peerWatch{h: &Host{cfg: Config{PeerTimeout: timeout}}}
				begin := time.Now()
				if err := w.ping(context.Background(), a, bufio.NewReader(a)); !isTimeout(err) {
					t.Fatalf("got %v", err)
				}
				if took := time.Since(begin); took != tc.want {
					t.Errorf("given up after %v, want %v", took, tc.want)
				}
			})
		})
	}
}

func TestABrokenConnectionIsNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		_ = b.Close()
		w := &peerWatch{h: &Host{cfg: Config{PeerTimeout: time.Second}}}
		if err := w.ping(context.Background(), a, bufio.NewReader(a)); err == nil || isTimeout(err) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestAStallOfThisProcessIsNotThePeers(t *testing.T) {
	const timeout = 500 * time.Millisecond
	for _, tc := range []struct {
		woke    time.Duration
		stalled bool
		want    time.Duration
	}{
		{0, false, timeout / 10},
		{timeout / 8, false, timeout / 10},
		{timeout / 2, false, timeout},
		{0, true, timeout},
	} {
		if got := graceAfter(timeout, tc.woke, tc.stalled); got != tc.want {
			t.Errorf("woke %v late, stalled %v: %v more, want %v", tc.woke, tc.stalled, got, tc.want)
		}
	}
}
