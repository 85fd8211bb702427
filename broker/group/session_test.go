package group

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/broker/coordinator"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestSessions plays the sessions in testdata, one for each row of the tables of the protocol. Each command prints what
// was answered while it ran. -rewrite writes what is printed into the files.
func TestSessions(t *testing.T) {
	datadriven.Walk(t, "testdata/sessions", func(t *testing.T, path string) {
		w := newWorld(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			w.command(d)
			if err := w.check(); err != nil {
				d.Fatalf(t, "%v", err)
			}
			return w.said()
		})
	})
}

// args reads the arguments of a command.
type args struct{ d *datadriven.TestData }

func (a args) has(name string) bool { return a.d.HasArg(name) }

func (a args) text(name, otherwise string) string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == name {
			return strings.Join(arg.Vals, ",")
		}
	}
	return otherwise
}

func (a args) number(name string, otherwise int64) int64 {
	n, err := strconv.ParseInt(a.text(name, strconv.FormatInt(otherwise, 10)), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (a args) pointer(name string) *string {
	if !a.has(name) {
		return nil
	}
	s := a.text(name, "")
	return &s
}

func (a args) list(name string) []string {
	if !a.has(name) {
		return nil
	}
	return strings.Split(a.text(name, ""), ",")
}

func codeName(code int16) string {
	if code == 0 {
		return "NONE"
	}
	return kerr.ErrorForCode(code).(*kerr.Error).Message
}

func (w *world) command(d *datadriven.TestData) {
	a := args{d}
	switch d.Cmd {
	case "flood":
		for range a.number("times", 0) {
			w.join(a)
		}
		w.lines = nil
		w.say("%d member ids are out", len(w.m.groups[a.text("group", "g")].classic.issued))
	case "config":
		w.configure(a)
	case "join":
		w.join(a)
	case "sync":
		w.sync(a)
	case "heartbeat":
		w.heartbeat(a)
	case "leave":
		w.leave(a)
	case "pass":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(w.t, "%v", err)
		}
		w.pass(by)
	case "failover":
		w.m.Resigned()
		w.elect()
		w.expire()
	case "drop-topic": // while nobody coordinates the group
		delete(w.cfg.Topics.(testTopics), a.text("topic", ""))
	case "refuse":
		w.refuse = coordinator.ErrTooLarge
	case "accept":
		w.refuse = nil
	case "state":
		w.say("%s", strings.TrimSuffix(persistent(w.m), "\n"))
	case "commit", "fetch", "delete-offsets", "txn-commit", "marker", "remove-topics":
		w.offsetCommand(d.Cmd, a)
	case "describe", "list", "delete":
		w.adminCommand(d.Cmd, a)
	default:
		d.Fatalf(w.t, "unknown command %s", d.Cmd)
	}
}

func (w *world) configure(a args) {
	ms := func(name string, into *time.Duration) {
		*into = time.Duration(a.number(name, into.Milliseconds())) * time.Millisecond
	}
	ms("delay", &w.cfg.InitialRebalanceDelay)
	ms("retention", &w.cfg.OffsetsRetention)
	ms("check", &w.cfg.OffsetsCheck)
	w.cfg.GroupMaxSize = int(a.number("size", int64(w.cfg.GroupMaxSize)))
	w.cfg.OffsetMetadataBytes = int(a.number("metadata", int64(w.cfg.OffsetMetadataBytes)))
	w.elect()
	w.expire()
}

func (w *world) join(a args) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version = int16(a.number("v", 9))
	req.Group, req.MemberID, req.InstanceID = a.text("group", "g"), a.text("member", ""), a.pointer("instance")
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = int32(a.number("session", 10_000)), int32(a.number("rebalance", 60_000))
	req.ProtocolType = a.text("type", "consumer")
	for _, p := range strings.Split(a.text("protocols", "range:m"), ",") {
		name, meta, _ := strings.Cut(p, ":")
		if name == "" {
			continue
		}
		rp := kmsg.NewJoinGroupRequestProtocol()
		rp.Name, rp.Metadata = name, []byte(meta)
		if topics, ok := strings.CutPrefix(meta, "topics="); ok {
			cm := kmsg.NewConsumerMemberMetadata()
			cm.Topics = strings.Split(topics, "+")
			rp.Metadata = cm.AppendTo(nil)
		}
		req.Protocols = append(req.Protocols, rp)
	}
	as, client := a.text("as", "join"), Client{a.text("client", "c"), "/h"}
	w.do(func(now time.Time, fx *coordinator.Effects) {
		w.m.JoinGroup(client, req, now, fx, func(r *kmsg.JoinGroupResponse, err error) { w.say("%s: %s", as, joinText(r, err)) })
	})
}

func joinText(r *kmsg.JoinGroupResponse, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case r.ErrorCode != 0:
		return fmt.Sprintf("%s member=%q", codeName(r.ErrorCode), r.MemberID)
	}
	s := fmt.Sprintf("member=%s gen=%d type=%s protocol=%s leader=%s", r.MemberID, r.Generation, deref(r.ProtocolType), deref(r.Protocol), r.LeaderID)
	if r.SkipAssignment {
		s += " skip-assignment"
	}
	for _, mb := range r.Members {
		s += fmt.Sprintf(" [%s %s %q]", mb.MemberID, deref(mb.InstanceID), mb.ProtocolMetadata)
	}
	return s
}

func (w *world) sync(a args) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version = 5
	req.Group, req.MemberID, req.InstanceID, req.Generation = a.text("group", "g"), a.text("member", ""), a.pointer("instance"), int32(a.number("gen", 1))
	req.ProtocolType, req.Protocol = a.pointer("type"), a.pointer("protocol")
	for _, p := range a.list("assign") {
		ra := kmsg.NewSyncGroupRequestGroupAssignment()
		id, bytes, _ := strings.Cut(p, ":")
		ra.MemberID, ra.MemberAssignment = id, []byte(bytes)
		req.GroupAssignment = append(req.GroupAssignment, ra)
	}
	as := a.text("as", "sync")
	w.do(func(now time.Time, fx *coordinator.Effects) {
		w.m.SyncGroup(Client{}, req, now, fx, func(r *kmsg.SyncGroupResponse, err error) {
			switch {
			case err != nil:
				w.say("%s: %v", as, err)
			case r.ErrorCode != 0:
				w.say("%s: %s", as, codeName(r.ErrorCode))
			default:
				w.say("%s: type=%s protocol=%s assignment=%q", as, deref(r.ProtocolType), deref(r.Protocol), r.MemberAssignment)
			}
		})
	})
}

func (w *world) heartbeat(a args) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.InstanceID, req.Generation = a.text("group", "g"), a.text("member", ""), a.pointer("instance"), int32(a.number("gen", 1))
	w.do(func(now time.Time, fx *coordinator.Effects) {
		w.m.Heartbeat(Client{}, req, now, fx, func(r *kmsg.HeartbeatResponse, err error) {
			if err != nil {
				w.say("heartbeat: %v", err)
				return
			}
			w.say("heartbeat: %s", codeName(r.ErrorCode))
		})
	})
}

func (w *world) leave(a args) {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group, req.MemberID = int16(a.number("v", 5)), a.text("group", "g"), a.text("member", "")
	for _, m := range a.list("members") {
		rm := kmsg.NewLeaveGroupRequestMember()
		id, instance, ok := strings.Cut(m, "/")
		if rm.MemberID = id; ok {
			rm.InstanceID = &instance
		}
		req.Members = append(req.Members, rm)
	}
	w.do(func(now time.Time, fx *coordinator.Effects) {
		w.m.LeaveGroup(Client{}, req, now, fx, func(r *kmsg.LeaveGroupResponse, err error) {
			if err != nil {
				w.say("leave: %v", err)
				return
			}
			s := codeName(r.ErrorCode)
			for _, m := range r.Members {
				s += fmt.Sprintf(" [%s/%s %s]", m.MemberID, deref(m.InstanceID), codeName(m.ErrorCode))
			}
			w.say("leave: %s", s)
		})
	})
}
