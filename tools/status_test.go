package tools

import (
	"strings"
	"testing"
	"time"
)

func TestStatusScreenNamesWhatNeedsAttention(t *testing.T) {
	s := &ClusterStatus{
		ClusterID: "abc", Controller: 100, Voters: []quorumReplica{{NodeID: 100}}, Topics: 2, Partitions: 12,
		Brokers: []brokerStatus{
			{ID: 1, Address: "a:9092", Leaders: 6, Replicas: 12, Stored: 3 << 20, Total: 100 << 30, Usable: 25 << 30},
			{ID: 3, Address: "c:9092", Leaders: 0, Replicas: 12, Total: 100 << 30, Usable: 1 << 20, MinFree: 1 << 30, SpaceLevel: 1, ScrubEndedMs: 1_700_000_000_000, Damaged: []topicPartition{{"t", 3}}},
			{ID: 2, Address: "b:9092", Fenced: true, Replicas: 12, Behind: 9, Stored: -1, Total: -1, Usable: -1},
		},
		Offline: []topicPartition{{"t", 3}}, UnderMinISR: []topicPartition{{"t", 3}}, Losses: 1, LostRecords: 7,
		Groups: []groupLag{{"readers", "Stable", 3, 1200}}, Unanswered: []string{"disk of broker 2: no answer"},
	}
	for i := range int32(9) {
		s.UnderReplicated = append(s.UnderReplicated, topicPartition{"t", i})
	}
	now := time.UnixMilli(1_700_000_000_000).Add(26 * time.Hour)
	c := &capture{}
	if err := c.output(true).writeJSON(s); err != nil {
		t.Fatal(err)
	}
	golden(t, "status.golden", s.screen(now)+c.out.String())
	if s.Healthy() {
		t.Error("called healthy")
	}
	for id := range int32(40) {
		s.Brokers = append(s.Brokers, brokerStatus{ID: 100 + id, Fenced: id == 39})
	}
	text := s.screen(now)
	if strings.Count(text, "\n") > 40 || !strings.Contains(text, "\n139 ") || !strings.Contains(text, "27 more brokers; `cairn status --json` has all") {
		t.Errorf("a screen of 43 brokers is\n%s", text)
	}
}
