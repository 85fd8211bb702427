package broker

import (
	"fmt"
	"testing"
	"time"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/ids"
	"cairn/wire/private"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func loss(epoch ids.LeaderEpoch, from, to ids.Offset, holder ids.NodeID) controller.Loss {
	return controller.Loss{
		TopicID: topicID, Topic: "t", LostRange: controller.LostRange{LeaderEpoch: epoch, From: from, To: to},
		Cause: controller.CauseDivergent, Holder: holder, AtMs: 3,
	}
}

// TestLossesAreLoggedAndCountedOnce: an estimate that becomes certain, and a second holder of the same records, are no
// further loss.
func TestLossesAreLoggedAndCountedOnce(t *testing.T) {
	core, logged := observer.New(zapcore.InfoLevel)
	h := startHandlers(t)
	b := h.broker
	b.log = zap.New(core)
	estimate := loss(4, 60, 100, 1)
	estimate.Estimated, estimate.Cause = true, controller.CauseUnclean
	dropped := loss(4, 60, 100, 1)
	dropped.DroppedMs = 9
	merged := loss(3, 0, 100, 1)
	merged.Merged, merged.LastEpoch, merged.Records = 7, 5, 50
	known := newKnownLosses([]controller.Loss{loss(3, 0, 5, 2)})
	for i, step := range []struct {
		line  controller.Loss
		level zapcore.Level
		fresh ids.Offset
	}{
		{estimate, zapcore.WarnLevel, 40},
		{loss(4, 58, 100, 1), zapcore.WarnLevel, 2},
		{loss(4, 60, 100, 3), zapcore.InfoLevel, 0},
		{loss(5, 60, 100, 3), zapcore.WarnLevel, 40},
		{dropped, zapcore.WarnLevel, 0},
		{loss(3, 0, 5, 1), zapcore.InfoLevel, 0},
		{merged, zapcore.WarnLevel, 0},
	} {
		fresh := known.add(step.line)
		b.reportLoss(step.line, fresh)
		if got := logged.TakeAll(); fresh != step.fresh || len(got) != 1 || got[0].Level != step.level {
			t.Errorf("step %d: %d offsets are news, logged %+v", i, fresh, got)
		}
	}
	b.countMerged([]controller.Loss{merged, loss(3, 0, 5, 1), merged})
	families, err := b.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "cairn_merged_losses" && f.GetMetric()[0].GetGauge().GetValue() != 14 {
			t.Errorf("merged ranges: %v", f)
		}
		if f.GetName() == "cairn_lost_records_total" {
			for _, m := range f.GetMetric() {
				counted[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	unclean, divergent := counted[string(controller.CauseUnclean)], counted[string(controller.CauseDivergent)]
	if unclean != 40 || divergent != 42 {
		t.Errorf("counted %v and %v", unclean, divergent)
	}
}

func TestDescribeLosses(t *testing.T) {
	h := startHandlers(t)
	img := testImage()
	img.Losses = []controller.Loss{loss(4, 60, 100, 1), {TopicID: internalID, Topic: "__consumer_offsets", Partition: 0, Holder: 2, DroppedMs: 7}}
	snapshot, err := controller.EncodeSnapshot(img)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.broker.images.Restore(snapshot); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		query private.LossQuery
		want  string
	}{
		{private.LossQuery{Partition: -1}, "[t-0 4:60-100 at 1 dropped 0 __consumer_offsets-0 0:0-0 at 2 dropped 7]"},
		{private.LossQuery{Topic: "t", Partition: -1}, "[t-0 4:60-100 at 1 dropped 0]"},
		{private.LossQuery{Topic: "t", Partition: 1}, "[]"},
		{private.LossQuery{Topic: "x", Partition: -1}, "[]"},
	} {
		resp := h.ask(t, "IN", &private.LossesRequest{Body: tt.query}).(*private.LossesResponse)
		var got []string
		for _, l := range resp.Body.Losses {
			got = append(got, fmt.Sprintf("%s-%d %d:%d-%d at %d dropped %d", l.Topic, l.Partition, l.LeaderEpoch, l.From, l.To, l.Broker, l.DroppedMs))
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%+v: %v, want %s", tt.query, got, tt.want)
		}
	}
}

func TestQuarantineLimits(t *testing.T) {
	entry := func(partition ids.PartitionID, base ids.Offset, atMs int64, bytes int) engine.QuarantineEntry {
		return engine.QuarantineEntry{
			QuarantinePos: engine.QuarantinePos{LeaderEpoch: 1, Base: base}, Partition: partition, Next: base + 10, AtMs: atMs, Bytes: bytes,
		}
	}
	list := []engine.QuarantineEntry{entry(1, 10, 3000, 50), entry(1, 20, 5000, 70), entry(2, 0, 1000, 30), entry(2, 10, 1000, 40)}
	now := time.UnixMilli(6000)
	for _, tt := range []struct {
		bytes int64
		age   time.Duration
		want  string
	}{
		{-1, -1, "[]"},
		{190, -1, "[]"},
		{189, -1, "[{2 0}]"},
		{100, -1, "[{2 0} {2 10} {1 10}]"},
		{0, -1, "[{2 0} {2 10} {1 10} {1 20}]"},
		{-1, 3 * time.Second, "[{2 0} {2 10}]"},
		{-1, 0, "[{2 0} {2 10} {1 10} {1 20}]"},
		{120, 4 * time.Second, "[{2 0} {2 10}]"},
	} {
		type place struct {
			partition ids.PartitionID
			base      ids.Offset
		}
		got := []place{}
		for _, x := range beyondLimits(list, tt.bytes, tt.age, now) {
			got = append(got, place{x.Partition, x.Base})
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%d bytes, %v: %v, want %s", tt.bytes, tt.age, got, tt.want)
		}
	}
	ranges := droppedRanges(append(list, entry(1, 30, 1, 1)), 9)
	if fmt.Sprint(ranges) != "[{1 [{1 10 40}] 9} {2 [{1 0 20}] 9}]" {
		t.Errorf("ranges %v", ranges)
	}
}

func TestElectLeadersWithoutAnswer(t *testing.T) {
	img := testImage()
	for _, topics := range [][]kmsg.ElectLeadersRequestTopic{nil, {{Topic: "t", Partitions: []int32{2}}}} {
		req := kmsg.NewPtrElectLeadersRequest()
		req.SetVersion(2)
		req.Topics = topics
		resp := unknownElections(img, req)
		n := 0
		for _, rt := range resp.Topics {
			for _, p := range rt.Partitions {
				n++
				if p.ErrorCode != 7 || p.ErrorMessage == nil {
					t.Errorf("%+v", p)
				}
			}
		}
		if want := map[bool]int{true: 4, false: 1}[topics == nil]; n != want {
			t.Errorf("%d partitions, want %d", n, want)
		}
	}
}
