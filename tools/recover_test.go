package tools

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/wire/batch"
	"cairn/wire/private"
)

// quarantined is a batch of two records at 100, of leader epoch 3, then a damaged one of epoch 4.
func quarantined(t *testing.T) []private.QuarantinedBatch {
	good, bad := testBatch(t, batch.CodecZstd), testBatch(t, batch.CodecNone)
	bad[len(bad)-1] ^= 1
	return []private.QuarantinedBatch{
		{Quarantine: private.Quarantine{LeaderEpoch: 3, Offset: 100}, Batch: good},
		{Quarantine: private.Quarantine{LeaderEpoch: 4, Offset: 100}, Batch: bad},
	}
}

// quarantineBroker answers one batch at a time, and remembers what was recovered.
func quarantineBroker(t *testing.T, batches []private.QuarantinedBatch) (conn Connection, removed *private.QuarantineRemoval) {
	removed = &private.QuarantineRemoval{}
	var losses []Loss
	conn = privateBroker(t, func(r kmsg.Request) kmsg.Response {
		switch q := r.(type) {
		case *private.RemovalRequest:
			*removed = q.Body
			return &private.RemovalResponse{Body: private.RemovalAnswer{Batches: len(batches)}}
		case *private.LossesRequest:
			return &private.LossesResponse{Body: private.LossAnswer{Losses: losses}}
		case *private.RecoveredRequest:
			for _, x := range q.Body.Ranges {
				losses = append(losses, Loss{Topic: q.Body.Topic, LostRange: x, RecoveredTo: q.Body.To, RecoveredMs: 1_700_000_000_000})
			}
			return &private.RecoveredResponse{}
		}
		from, resp := r.(*private.QuarantineRequest).Body.From, &private.QuarantineResponse{}
		for _, b := range batches {
			if b.LeaderEpoch < from.LeaderEpoch || b.LeaderEpoch == from.LeaderEpoch && b.Offset < from.Offset {
				continue
			}
			if len(resp.Body.Batches) == 1 {
				resp.Body.More = true
				break
			}
			resp.Body.Batches = append(resp.Body.Batches, b)
		}
		return resp
	})
	return conn, removed
}

// pointTo has the fake cluster say that broker 7 is at the address, besides its own ones.
func pointTo(cluster *kfake.Cluster, address string) {
	host, port, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := r.(*kmsg.MetadataRequest)
		if req.Topics == nil || len(req.Topics) > 0 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = 7, host, int32(n)
		resp.Brokers = append(resp.Brokers, b)
		return resp, nil, true
	})
}

func TestRecoverProducesWithTheOrigin(t *testing.T) {
	cluster, conn := fakeCluster(t, kfake.SeedTopics(1, "saved"))
	broker, removed := quarantineBroker(t, quarantined(t)[:1])
	pointTo(cluster, broker.Bootstrap)
	ctx, c := testContext(t), &capture{}
	o := RecoverOptions{Topic: "t", Broker: -1, To: "saved", Remove: true}
	if err := Recover(ctx, conn, o, c.output(false)); err != nil {
		t.Fatal(err)
	}
	golden(t, "recover.golden", c.out.String())
	if removed.UpTo != (private.Quarantine{LeaderEpoch: 3, Offset: 100}) || removed.Topic != "t" {
		t.Errorf("removed %+v", removed)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("saved"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var got []string
	for len(got) < 2 {
		fs := cl.PollFetches(ctx)
		if fs.Err() != nil {
			t.Fatal(fs.Err())
		}
		fs.EachRecord(func(r *kgo.Record) {
			var h []string
			for _, x := range r.Headers {
				h = append(h, x.Key+"="+string(x.Value))
			}
			got = append(got, fmt.Sprintf("%s=%s at %d null %t: %s", r.Key, r.Value, r.Timestamp.UnixMilli(), r.Value == nil, strings.Join(h, " ")))
		})
	}
	const origin = "cairn.origin.topic=t cairn.origin.partition=0 cairn.origin.leader.epoch=3 cairn.origin.offset=10"
	for i, want := range []string{"k=v at 1000 null false: a= b=1 " + origin + "0", "= at 1005 null true: " + origin + "1"} {
		if got[i] != want {
			t.Errorf("record %d is %q, want %q", i, got[i], want)
		}
	}
}

func TestRecoverTwiceProducesOnce(t *testing.T) {
	cluster, conn := fakeCluster(t, kfake.SeedTopics(1, "saved"))
	broker, removed := quarantineBroker(t, quarantined(t)[:1])
	pointTo(cluster, broker.Bootstrap)
	ctx := testContext(t)
	o := RecoverOptions{Topic: "t", Broker: 7, To: "saved"}
	for i, tt := range []struct {
		again   bool
		printed string
		failed  string
	}{
		{false, "Recovered 2 records of t-0 from quarantine at broker 7 to saved", ""},
		{false, "Passed over 2 records of t-0", "already recovered to saved at 2023-11-14T22:13:20.000Z; --again repeats it"},
		{true, "Recovered 2 records of t-0 from quarantine at broker 7 to saved", ""},
	} {
		c := &capture{}
		o.Again = tt.again
		err := Recover(ctx, conn, o, c.output(false))
		if !strings.HasPrefix(c.out.String(), tt.printed) {
			t.Errorf("run %d printed %q", i, c.out.String())
		}
		if (err != nil) != (tt.failed != "") || err != nil && !strings.Contains(err.Error(), tt.failed) {
			t.Errorf("run %d: %v", i, err)
		}
	}
	if removed.Topic != "" {
		t.Errorf("removed %+v unasked", removed)
	}
	c := &capture{}
	o.Again, o.Remove = false, true
	err := Recover(ctx, conn, o, c.output(false))
	if got := c.out.String(); err != nil || !strings.HasPrefix(got, "Passed over 2 records of t-0") || !strings.HasSuffix(got, "Removed them from quarantine at broker 7.\n") {
		t.Errorf("removal of what was recovered before: %v, printed %q", err, got)
	}
	if removed.UpTo != (private.Quarantine{LeaderEpoch: 3, Offset: 100}) || removed.Topic != "t" {
		t.Errorf("removed %+v", removed)
	}
}

func TestRecoverTellsOfDamage(t *testing.T) {
	cluster, conn := fakeCluster(t, kfake.SeedTopics(1, "saved"))
	broker, removed := quarantineBroker(t, quarantined(t))
	pointTo(cluster, broker.Bootstrap)
	ctx, c := testContext(t), &capture{}
	err := Recover(ctx, conn, RecoverOptions{Topic: "t", Broker: 7, To: "saved", Remove: true}, c.output(true))
	if err == nil || !strings.Contains(err.Error(), "damaged batches: 1 in quarantine") {
		t.Errorf("error %v", err)
	}
	golden(t, "recover_json.golden", c.out.String())
	if removed.Topic != "" {
		t.Errorf("removed %+v in spite of the damage", removed)
	}
	for _, tt := range []struct {
		o    RecoverOptions
		want string
	}{
		{RecoverOptions{Topic: "t", Broker: 8, To: "saved"}, "broker 8 is not alive, those that are: 7"},
		{RecoverOptions{Topic: "t", Broker: -1, To: "none"}, "cairn topics create --topic none"},
		{RecoverOptions{Topic: "t", Broker: -1, To: "saved", DataDir: t.TempDir() + "/none"}, "must be the log.dirs"},
	} {
		if err := Recover(ctx, conn, tt.o, c.output(false)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
}

func TestRangesJoin(t *testing.T) {
	p := reproducer{}
	for _, r := range [][3]int64{{3, 0, 5}, {3, 5, 7}, {4, 7, 9}, {4, 10, 11}} {
		p.cover(int32(r[0]), r[1], r[2])
	}
	if got := fmt.Sprint(p.done.Ranges); got != "[{3 0 7} {4 7 9} {4 10 11}]" {
		t.Error(got)
	}
}
