package broker

import (
	"testing"
	"time"

	"cairn/broker/controller"
	"cairn/broker/topicconfig"
)

// throttleOf makes the throttle of broker 1, which leads partition 0 of t with replicas 1 and 2; only 1 is in sync.
func throttleOf(t *testing.T, now *time.Time, edit func(*controller.Image), static topicconfig.Layer) *throttle {
	t.Helper()
	img := testImage()
	img.Topics["t"].Partitions[0].InSync = img.Topics["t"].Partitions[0].InSync[:1]
	edit(img)
	snapshot, err := controller.EncodeSnapshot(img)
	if err != nil {
		t.Fatal(err)
	}
	images := controller.NewStore()
	if err := images.Restore(snapshot); err != nil {
		t.Fatal(err)
	}
	return newThrottle(1, images, static, func() time.Time { return *now })
}

func setTopic(img *controller.Image, configs map[string]string) {
	img.Configs[controller.Resource{Type: controller.TopicResource, Name: "t"}] = configs
}

func setBroker(img *controller.Image, id string, configs map[string]string) {
	img.Configs[controller.Resource{Type: controller.BrokerResource, Name: id}] = configs
}

func TestThrottleKeepsToKafkasRates(t *testing.T) {
	for _, tc := range []struct {
		name   string
		edit   func(*controller.Image)
		static topicconfig.Layer
		paced  bool
		wait   time.Duration // for 1,000 bytes
	}{
		{"nothing set", func(*controller.Image) {}, nil, false, 0},
		{"a rate without replicas", func(img *controller.Image) { setBroker(img, "1", map[string]string{leaderRate: "1000"}) }, nil, false, 0},
		{"replicas without a rate", func(img *controller.Image) { setTopic(img, map[string]string{leaderReplicas: "*"}) }, nil, false, 0},
		{"as leader", func(img *controller.Image) {
			setTopic(img, map[string]string{leaderReplicas: "1:1, 0:1"})
			setBroker(img, "1", map[string]string{leaderRate: "1000"})
		}, nil, true, time.Second},
		{"another replica of the list leads", func(img *controller.Image) {
			setTopic(img, map[string]string{leaderReplicas: "0:2"})
			setBroker(img, "1", map[string]string{leaderRate: "1000"})
		}, nil, false, 0},
		{"as follower", func(img *controller.Image) {
			setTopic(img, map[string]string{followerReplicas: "0:2"})
			setBroker(img, "2", map[string]string{followerRate: "500"})
		}, nil, true, 2 * time.Second},
		{"both, the slower one holds", func(img *controller.Image) {
			setTopic(img, map[string]string{followerReplicas: "*", leaderReplicas: "*"})
			setBroker(img, "1", map[string]string{leaderRate: "1000"})
			setBroker(img, "2", map[string]string{followerRate: "2000"})
		}, nil, true, time.Second},
		{"of the whole cluster", func(img *controller.Image) {
			setTopic(img, map[string]string{leaderReplicas: "*"})
			setBroker(img, "", map[string]string{leaderRate: "4000"})
		}, nil, true, 250 * time.Millisecond},
		{"of the properties file", func(img *controller.Image) { setTopic(img, map[string]string{leaderReplicas: "*"}) }, topicconfig.Layer{leaderRate: "100"}, true, 10 * time.Second},
		{"no byte", func(img *controller.Image) {
			setTopic(img, map[string]string{leaderReplicas: "*"})
			setBroker(img, "1", map[string]string{leaderRate: "0"})
		}, nil, true, time.Minute},
	} {
		now := time.Unix(1000, 0)
		th := throttleOf(t, &now, tc.edit, tc.static)
		if wait, paced := th.charge("t", 0, 2, 1000); wait != tc.wait || paced != tc.paced {
			t.Errorf("%s: wait %v, paced %v, want %v, %v", tc.name, wait, paced, tc.wait, tc.paced)
		}
		if wait, paced := th.charge("t", 0, 1, 1000); paced {
			t.Errorf("%s: a replica in sync waits %v", tc.name, wait)
		}
	}
}

func TestThrottleAddsUpAndForgets(t *testing.T) {
	now := time.Unix(1000, 0)
	th := throttleOf(t, &now, func(img *controller.Image) {
		setTopic(img, map[string]string{leaderReplicas: "*"})
		setBroker(img, "1", map[string]string{leaderRate: "1000"})
	}, nil)
	for i := range 3 {
		if wait, _ := th.charge("t", 0, 2, 1000); wait != time.Duration(i+1)*time.Second {
			t.Errorf("piece %d waits %v", i, wait)
		}
	}
	now = now.Add(time.Hour)
	if wait, _ := th.charge("t", 0, 2, 1000); wait != time.Second {
		t.Errorf("after an hour a piece waits %v", wait)
	}
	if wait, _ := th.charge("t", 0, 2, 1<<40); wait != time.Minute {
		t.Errorf("a huge piece waits %v", wait)
	}
}

func TestCatchingUpLeavesClientsTheirShare(t *testing.T) {
	now := time.Unix(1000, 0)
	th := throttleOf(t, &now, func(*controller.Image) {}, nil)
	if wait, paced := th.charge("t", 0, 2, 1<<20); paced {
		t.Errorf("nobody produces, and it waits %v", wait)
	}
	second := func(bytes int64) {
		th.spare.produced.Add(bytes)
		now = now.Add(time.Second)
	}
	second(1 << 20)
	if wait, paced := th.charge("t", 0, 2, 4<<20); !paced || wait != time.Second {
		t.Errorf("1 MiB/s are produced: wait %v, paced %v, want the least rate", wait, paced)
	}
	for range 40 {
		second(40 << 20)
		th.charge("t", 0, 2, 1)
	}
	if wait, paced := th.charge("t", 0, 2, 60<<20); !paced || wait.Round(time.Millisecond) != time.Second {
		t.Errorf("40 MiB/s are produced: wait %v, paced %v, want 60 MiB/s", wait, paced)
	}
	second(0)
	if wait, paced := th.charge("t", 0, 2, 1<<20); paced {
		t.Errorf("production has ended, and it waits %v", wait)
	}
}

// Clients wait for a partition below its minimum, so it catches up without a limit of its own.
func TestBelowTheMinimumNothingIsHeldUp(t *testing.T) {
	now := time.Unix(1000, 0)
	th := throttleOf(t, &now, func(img *controller.Image) { setTopic(img, map[string]string{"min.insync.replicas": "2"}) }, nil)
	th.charge("t", 0, 2, 1)
	th.spare.produced.Add(40 << 20)
	now = now.Add(time.Second)
	if wait, paced := th.charge("t", 0, 2, 60<<20); paced {
		t.Errorf("it waits %v", wait)
	}
}
