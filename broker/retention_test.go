package broker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"cairn/internal/clock"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// produceAt produces one record of the time to partition 0, in a batch of its own.
func produceAt(t *testing.T, cl *kgo.Client, topic string, at time.Time, valueBytes int) {
	t.Helper()
	r := &kgo.Record{Topic: topic, Timestamp: at, Value: make([]byte, valueBytes)}
	if err := cl.ProduceSync(testContext(t), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func mustAlter(t *testing.T, adm *kadm.Client, topic string, configs ...string) {
	t.Helper()
	var ops []kadm.AlterConfig
	for i := 0; i < len(configs); i += 2 {
		ops = append(ops, kadm.AlterConfig{Name: configs[i], Value: &configs[i+1]})
	}
	resp, err := adm.AlterTopicConfigs(testContext(t), ops, topic)
	if err == nil {
		_, err = resp.On(topic, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRetentionMovesTheLogStartOfEveryReplica changes the retention of a topic at run time, by time, by size, and off by policy.
func TestRetentionMovesTheLogStartOfEveryReplica(t *testing.T) {
	c := startCluster(t, 3)
	defer c.close(t)
	cl := c.client(t, kgo.ProducerBatchCompression(kgo.NoCompression()))
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(testContext(t), 1, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for age := 100; age > 0; age-- { // one record for each of the last hundred hours
		produceAt(t, cl, "t", now.Add(-time.Duration(age)*time.Hour), 1000)
	}
	starts := func(want ids.Offset) {
		t.Helper()
		awaitTrue(t, func() bool {
			there := true
			for _, n := range c.brokers {
				n.broker.replicas.expire(testContext(t), time.Minute)
				p, err := n.broker.replicas.lookup("t", 0)
				there = there && err == nil && p.log().Start() == want
			}
			return there
		})
	}
	starts(0) // a week, by default
	mustAlter(t, adm, "t", "retention.ms", "289800000")
	starts(20) // 80 hours and a half
	mustAlter(t, adm, "t", "cleanup.policy", "compact", "retention.ms", "1000")
	for _, n := range c.brokers {
		awaitTrue(t, func() bool {
			p, err := n.broker.replicas.lookup("t", 0)
			return err == nil && p.settings.Load().RetentionMs == 1000 && !p.settings.Load().DeletePolicy
		})
	}
	starts(20)
	mustAlter(t, adm, "t", "cleanup.policy", "compact,delete", "retention.ms", "-1", "retention.bytes", "10600")
	starts(90)
	mustAlter(t, adm, "t", "retention.bytes", "0", "cleanup.policy", "delete")
	starts(100)
	produceAt(t, cl, "t", now, 10) // the log goes on
	starts(101)
}

func TestConsumersBelowTheLogStartAreTold(t *testing.T) {
	a := startAdmin(t)
	config := map[string]*string{"retention.ms": kmsg.StringPtr("60000")}
	if _, err := a.admin.CreateTopic(testContext(t), 1, 1, config, "t"); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i := range 20 {
		produceAt(t, a.client, "t", now.Add(-time.Hour*time.Duration(max(0, 10-i))), 10)
	}
	p := awaitLeader(t, a.node, "t", 0)
	awaitTrue(t, func() bool {
		a.node.broker.replicas.expire(testContext(t), time.Minute)
		return p.log().Start() == 10
	})
	earliest := newTestClient(t, kgo.SeedBrokers(clientAddress(a.node)), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().At(3)}}))
	if first := earliest.PollFetches(testContext(t)).Records(); len(first) == 0 || first[0].Offset != 10 {
		t.Errorf("from below the log start: %v", first)
	}
	none := newTestClient(t, kgo.SeedBrokers(clientAddress(a.node)), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().At(3)}}))
	if err := none.PollFetches(testContext(t)).Err(); err != kerr.OffsetOutOfRange {
		t.Errorf("without auto.offset.reset: %v", err)
	}
}

// While in-sync replicas are missing a log start cannot be committed. It is proposed once, and again only when it can come no more.
func TestRetentionProposesOnceUntilDecided(t *testing.T) {
	a := startAdmin(t)
	config := map[string]*string{"retention.ms": kmsg.StringPtr("60000")}
	if _, err := a.admin.CreateTopic(testContext(t), 1, 1, config, "t"); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for range 10 {
		produceAt(t, a.client, "t", now.Add(-time.Hour), 10)
	}
	p := awaitLeader(t, a.node, "t", 0)
	undecided := &retentionMove{reign: p.serving(), to: 5}
	p.retentionMove.Store(undecided)
	before := p.log().LastIndex()
	for range 50 {
		if more := p.expire(now); !more || p.retentionMove.Load() != undecided {
			t.Fatalf("more %v, proposed %+v", more, p.retentionMove.Load())
		}
	}
	if after := p.log().LastIndex(); after != before || p.log().Start() != 0 {
		t.Errorf("entries %d to %d, log start %d", before, after, p.log().Start())
	}
	undecided.dropped(0)
	p.expire(now)
	awaitTrue(t, func() bool { return p.log().Start() == 10 })
	if p.retentionMove.Load() == undecided || p.retentionMove.Load().underWay(p, p.serving()) {
		t.Errorf("%+v counts as under way", p.retentionMove.Load())
	}
}

func TestRetentionIsLookedAtInItsInterval(t *testing.T) {
	for _, tc := range []struct{ interval, first time.Duration }{{time.Second, time.Second}, {time.Hour, retentionFirst}} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			var looks []time.Duration
			m := &replicaManager{cfg: replicaManagerConfig{RetentionCheck: tc.interval}}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				m.everyRetentionCheck(ctx, func() {
					looks = append(looks, time.Since(begin))
					time.Sleep(time.Second)
				})
			}()
			time.Sleep(tc.first + 2*(tc.interval+time.Second) + time.Millisecond)
			cancel()
			<-done
			if len(looks) != 3 || looks[0] != tc.first || looks[2] != tc.first+2*(tc.interval+time.Second) {
				t.Errorf("every %v: looked at %v", tc.interval, looks)
			}
		})
	}
}

// TestStepOfTheClockAgesNothingAtOnce: for as long as a step forwards may be taken back, records are as old as they were before it.
func TestStepOfTheClockAgesNothingAtOnce(t *testing.T) {
	var c ageClock
	real, set := time.Now(), time.Duration(0)
	look := func(what string, passes, by, want time.Duration) {
		t.Helper()
		real, set = real.Add(passes), set+by
		if got := c.take(clock.Set(real, set)); got.UnixMilli() != real.Add(want).UnixMilli() {
			t.Errorf("%s: the time is taken to be %v ahead, want %v", what, got.Sub(real.Round(0)), want)
		}
	}
	look("at first", 0, 0, 0)
	look("as time goes by", 5*time.Minute, 0, 0)
	look("slewed", 5*time.Minute, 2*time.Second, 2*time.Second)
	look("set forwards", time.Minute, 3*time.Hour, 2*time.Second)
	look("and taken back", time.Minute, -3*time.Hour, 2*time.Second)
	look("set forwards again", 5*time.Minute, 3*time.Hour, 2*time.Second)
	look("and standing for a while", 4*time.Minute, 0, 2*time.Second)
	look("and standing for long", time.Minute, 0, 2*time.Second+3*time.Hour)
	look("believed", time.Second, 0, 2*time.Second+3*time.Hour)
	look("set back", time.Second, -5*time.Hour, 2*time.Second-2*time.Hour)
	look("and right again", time.Second, 2*time.Hour, 2*time.Second-2*time.Hour)
	look("for long", 10*time.Minute, 0, 2*time.Second)
}
