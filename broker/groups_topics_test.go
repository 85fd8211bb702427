package broker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestOffsetsGoWithTheirTopic: what a group has committed of a topic is gone when the topic is, what it has committed of
// others is not. Every version of the requests says the same.
func TestOffsetsGoWithTheirTopic(t *testing.T) {
	a := startAdmin(t)
	ctx := testContext(t)
	if _, err := a.admin.CreateTopics(ctx, 1, 1, nil, "kept", "dropped"); err != nil {
		t.Fatal(err)
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset("kept", 0, 0, -1)
	offsets.AddOffset("dropped", 0, 0, -1)
	if err := a.admin.CommitAllOffsets(ctx, "g", offsets); err != nil {
		t.Fatal(err)
	}
	committed := func(version int16, topic string) int64 {
		req := withVersion(kmsg.NewPtrOffsetFetchRequest(), version)
		req.Group = "g"
		req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: topic, Partitions: []int32{0}}}
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = "g"
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic, Partitions: []int32{0}}}
		req.Groups = append(req.Groups, g)
		c := dialNode(t, a.node)
		c.send(req)
		resp := c.receive(req).(*kmsg.OffsetFetchResponse)
		if version < offsetFetchGroups {
			return resp.Topics[0].Partitions[0].Offset
		}
		return resp.Groups[0].Topics[0].Partitions[0].Offset
	}
	for v := int16(1); v < offsetFetchTopicIDs; v++ {
		if k, d := committed(v, "kept"), committed(v, "dropped"); k != 0 || d != 0 {
			t.Errorf("version %d: kept %d, dropped %d", v, k, d)
		}
	}
	if _, err := a.admin.DeleteTopics(ctx, "dropped"); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testTimeout); committed(9, "dropped") != -1; {
		if time.Now().After(end) {
			t.Fatal("the offset outlives its topic")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if k := committed(9, "kept"); k != 0 {
		t.Errorf("kept: %d", k)
	}
}
