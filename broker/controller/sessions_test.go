package controller

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"cairn/internal/clock"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// inBubble runs a test of one quorum in fake time.
func inBubble(t *testing.T, controllers int, f func(t *testing.T, q *quorum)) {
	inBubbleOf(t, controllers, nil, f)
}

// inBubbleWith is inBubble with one controller that is configured otherwise.
func inBubbleWith(t *testing.T, edit func(*Config), f func(t *testing.T, q *quorum)) {
	inBubbleOf(t, 1, edit, f)
}

func inBubbleOf(t *testing.T, controllers int, edit func(*Config), f func(t *testing.T, q *quorum)) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuorum(t, controllers, edit)
		defer q.close()
		q.elect(0)
		f(t, q)
	})
}

// sleep lets fake time pass and all that follows from it happen.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (q *quorum) wantFenced(n ids.NodeID, want bool, when string) {
	q.t.Helper()
	if got := q.image().Brokers[n].Fenced; got != want {
		q.t.Errorf("%s: fenced %v, want %v", when, got, want)
	}
}

func TestSilentBrokerIsFencedAfterTheSessionTimeout(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		conn := q.nodes[0].ctl.NewConn()
		defer conn.Close()
		q.brokers(conn, 2)
		epoch := q.image().Brokers[2].Epoch
		sleep(5 * time.Second)
		beat(t, conn, 2, epoch)
		sleep(9*time.Second - time.Millisecond)
		q.wantFenced(2, false, "just before the session's end")
		sleep(time.Millisecond)
		q.wantFenced(2, true, "at the session's end")
		if r := beat(t, conn, 2, epoch); r.IsFenced {
			t.Error("the next heartbeat does not unfence")
		}
		q.wantFenced(2, false, "after another heartbeat")
	})
}

func TestBrokerWithoutConnectionIsFencedAfterTheGrace(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		ctl := q.nodes[0].ctl
		conn := ctl.NewConn()
		q.brokers(conn, 2)
		epoch := q.image().Brokers[2].Epoch

		conn.Close()
		sleep(400 * time.Millisecond)
		conn = ctl.NewConn()
		beat(t, conn, 2, epoch)
		sleep(2 * time.Second)
		q.wantFenced(2, false, "back within the grace")

		second := ctl.NewConn()
		beat(t, second, 2, epoch)
		conn.Close()
		sleep(2 * time.Second)
		q.wantFenced(2, false, "one of two connections gone")
		second.Close()
		second.Close() // idempotent
		sleep(499 * time.Millisecond)
		q.wantFenced(2, false, "within the grace")
		sleep(time.Millisecond)
		q.wantFenced(2, true, "after the grace")
	})
}

func TestBrokerThatShutsDownIsFencedWhenItsConnectionEnds(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		conn := q.nodes[0].ctl.NewConn()
		q.brokers(conn, 2)
		req := heartbeatRequest(2, q.image().Brokers[2].Epoch)
		req.WantShutdown = true
		r := conn.Handle(t.Context(), req).(*kmsg.BrokerHeartbeatResponse)
		if r.ErrorCode != 0 || !r.ShouldShutdown || r.IsFenced {
			t.Errorf("shutdown of a broker that leads nothing: %+v", r)
		}
		conn.Close()
		synctest.Wait()
		q.wantFenced(2, true, "at once")
	})
}

func TestNewControllerGivesAFullSession(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, q *quorum) {
		conn := q.nodes[0].ctl.NewConn()
		q.brokers(conn, 2)
		sleep(8 * time.Second)
		q.elect(1)
		conn.Close() // the old controller's business no more
		sleep(9*time.Second - 2*time.Millisecond)
		q.wantFenced(2, false, "within a session from the election")
		sleep(2 * time.Millisecond)
		q.wantFenced(2, true, "after it")
	})
}

func TestFencingIsRetriedUntilItIsCommitted(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		conn := q.nodes[0].ctl.NewConn()
		defer conn.Close()
		q.brokers(conn, 2)
		stuck := make(chan struct{})
		q.mu.Lock()
		q.stuck = stuck
		q.mu.Unlock()
		sleep(20 * time.Second)
		q.wantFenced(2, false, "nothing can be committed")
		q.mu.Lock()
		q.stuck = nil
		q.mu.Unlock()
		close(stuck)
		sleep(time.Second)
		q.wantFenced(2, true, "once it can")
	})
}

func TestSessionsGoOnAfterTheControllerWasStopped(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, q *quorum) {
		conn := q.nodes[0].ctl.NewConn()
		defer conn.Close()
		q.brokers(conn, 2)
		q.nodes[0].ctl.forgive(5 * time.Second)
		sleep(14*time.Second - time.Millisecond)
		q.wantFenced(2, false, "within the prolonged session")
		sleep(time.Millisecond)
		q.wantFenced(2, true, "after it")
	})
}

// TestControllerThatWasStoppedFencesNobody: however long it was stopped, and whenever in the time between two looks or two heartbeats. A broker that
// is silent after that is fenced all the same.
func TestControllerThatWasStoppedFencesNobody(t *testing.T) {
	for stopped := time.Duration(0); stopped < 30*time.Second; stopped += 500 * time.Millisecond {
		for _, silent := range []time.Duration{0, 400 * time.Millisecond, DefaultHeartbeatInterval} {
			inBubble(t, 1, func(t *testing.T, q *quorum) {
				ctl := q.nodes[0].ctl
				conn := ctl.NewConn()
				defer conn.Close()
				q.brokers(conn, 2)
				ctl.stop() // the test has the turns of its goroutine
				synctest.Wait()
				due := ctl.look(t.Context(), clock.Now())
				runs := func(until time.Time) {
					for ; !due.After(until); due = ctl.look(t.Context(), due) {
						sleep(time.Until(due))
					}
					sleep(time.Until(until))
				}
				runs(clock.Now().Add(silent))
				sleep(stopped)
				due = ctl.look(t.Context(), due)
				q.wantFenced(2, false, fmt.Sprintf("stopped for %v, %v after a heartbeat", stopped, silent))
				runs(clock.Now().Add(DefaultSessionTimeout))
				q.wantFenced(2, true, fmt.Sprintf("a session after it was stopped for %v", stopped))
			})
		}
	}
}

func TestHeartbeatCodes(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, q *quorum) {
		conn := q.nodes[0].ctl.NewConn()
		defer conn.Close()
		q.brokers(conn, 2)
		epoch := q.image().Brokers[2].Epoch
		passive := q.nodes[1].ctl.NewConn()
		for _, tt := range []struct {
			name string
			conn *Conn
			node ids.NodeID
			at   int64
			want int16
		}{
			{"passive controller", passive, 2, epoch, kerr.NotController.Code},
			{"unknown broker", conn, 9, epoch, kerr.BrokerIDNotRegistered.Code},
			{"older registration", conn, 2, epoch - 1, kerr.StaleBrokerEpoch.Code},
		} {
			r := tt.conn.Handle(t.Context(), heartbeatRequest(tt.node, tt.at)).(*kmsg.BrokerHeartbeatResponse)
			if r.ErrorCode != tt.want || !r.IsFenced {
				t.Errorf("%s: %+v, want code %d", tt.name, r, tt.want)
			}
		}
		req := heartbeatRequest(2, epoch)
		req.WantFence = true
		if r := conn.Handle(t.Context(), req).(*kmsg.BrokerHeartbeatResponse); !r.IsFenced || r.ErrorCode != 0 {
			t.Errorf("broker that wants to be fenced: %+v", r)
		}
		req.WantFence, req.CurrentMetadataOffset = false, epoch-1
		if r := conn.Handle(t.Context(), req).(*kmsg.BrokerHeartbeatResponse); !r.IsFenced || r.IsCaughtUp {
			t.Errorf("broker that has not caught up: %+v", r)
		}
	})
}

func TestRegistrationCodes(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, q *quorum) {
		conn := q.nodes[0].ctl.NewConn()
		q.brokers(conn, 2, 7)
		register := func(c *Conn, incarnation byte, edit func(*kmsg.BrokerRegistrationRequest)) int16 {
			t.Helper()
			req := registrationRequest(7, incarnation)
			if edit != nil {
				edit(req)
			}
			r := c.Handle(t.Context(), req).(*kmsg.BrokerRegistrationResponse)
			if (r.ErrorCode == 0) == (r.BrokerEpoch <= 0) {
				t.Errorf("code %d with epoch %d", r.ErrorCode, r.BrokerEpoch)
			}
			return r.ErrorCode
		}
		second := q.nodes[0].ctl.NewConn()
		elsewhere := func(r *kmsg.BrokerRegistrationRequest) { r.LogDirs = [][16]byte{testID(98)} }
		for name, tt := range map[string]struct{ got, want int16 }{
			"passive controller": {register(q.nodes[1].ctl.NewConn(), 2, nil), kerr.NotController.Code},
			"other cluster":      {register(second, 2, func(r *kmsg.BrokerRegistrationRequest) { r.ClusterID = "x" }), kerr.InconsistentClusterID.Code},
			"no listener":        {register(second, 2, func(r *kmsg.BrokerRegistrationRequest) { r.Listeners = nil }), kerr.InvalidRegistration.Code},
			"same process":       {register(second, 1, func(r *kmsg.BrokerRegistrationRequest) { r.ClusterID = q.image().ClusterID }), 0},
			"second process":     {register(second, 2, elsewhere), kerr.DuplicateBrokerRegistration.Code},
		} {
			if tt.got != tt.want {
				t.Errorf("%s: code %d, want %d", name, tt.got, tt.want)
			}
		}
		if code := register(second, 4, nil); code != 0 {
			t.Errorf("process on the data directory of the one before it, whose connection is still there: code %d", code)
		}
		conn.Close()
		second.Close()
		third := q.nodes[0].ctl.NewConn()
		defer third.Close()
		if code := register(third, 3, nil); code != 0 {
			t.Errorf("process that follows one whose connections are gone: code %d", code)
		}
		if q.members[firstReplica] != 7 || len(q.members) != 1 {
			t.Errorf("metadata members %v, want broker 7 once and no voter", q.members)
		}
		wiped := func(r *kmsg.BrokerRegistrationRequest) { r.LogDirs = [][16]byte{testID(99)} }
		if code := register(third, 4, wiped); code != 0 || q.members[firstReplica+1] != 7 || len(q.members) != 1 {
			t.Errorf("broker with another data directory: code %d, members %v", code, q.members)
		}
	})
}

// A process is replaced by the next one on its data directory, and by none that had it before: the network may hold back what that one sent.
func TestLateRegistrationIsRefused(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, q *quorum) {
		conn := q.nodes[0].ctl.NewConn()
		defer conn.Close()
		opened := func(ns uint64, boot string) func(*kmsg.BrokerRegistrationRequest) {
			return func(r *kmsg.BrokerRegistrationRequest) {
				setTagUint(&r.UnknownTags, tagOpenedNs, ns)
				r.UnknownTags.Set(tagBootID, []byte(boot))
			}
		}
		for _, tt := range []struct {
			name        string
			incarnation byte
			edit        func(*kmsg.BrokerRegistrationRequest)
			want        int16
		}{
			{"it says when it opened the directory", 5, opened(20, "a"), 0},
			{"one that opened it before, whose request was late", 6, opened(10, "a"), kerr.DuplicateBrokerRegistration.Code},
			{"the same process again", 5, opened(20, "a"), 0},
			{"the next one", 7, opened(30, "a"), 0},
			{"the first one since the machine was started again", 8, opened(5, "b"), 0},
			{"one that does not say when", 9, nil, 0},
		} {
			req := registrationRequest(7, tt.incarnation)
			if tt.edit != nil {
				tt.edit(req)
			}
			if r := conn.Handle(t.Context(), req).(*kmsg.BrokerRegistrationResponse); r.ErrorCode != tt.want {
				t.Errorf("%s: code %d, want %d", tt.name, r.ErrorCode, tt.want)
			}
		}
	})
}
