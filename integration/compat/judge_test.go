package main

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

func memberThat(lines ...string) *stockMember {
	m := &stockMember{read: map[string]bool{}, last: map[int32]int64{}, astray: map[string]bool{}}
	for _, line := range lines {
		m.heard(line)
	}
	return m
}

// TestUnreadExcusesOneRecordOfAStoppedClient: one record for each client that drops one, behind what it printed, of a partition that it had.
func TestUnreadExcusesOneRecordOfAStoppedClient(t *testing.T) {
	ends := kadm.ListedOffsets{"t": {0: {Topic: "t", Partition: 0, Offset: 4}, 1: {Topic: "t", Partition: 1, Offset: 2}}}
	others := memberThat("read 0 3", "read 1 0", "read 1 1")
	for _, row := range []struct {
		name  string
		drops bool
		left  []string
		lines []string
		lost  bool
	}{
		{"nothing is missing", false, nil, []string{"read 0 0", "read 0 1", "read 0 2"}, false},
		{"a client that keeps what it is handed", false, []string{"t-0"}, []string{"read 0 0", "read 0 1"}, true},
		{"one that drops the last", true, []string{"t-0"}, []string{"read 0 0", "read 0 1"}, false},
		{"one that was not told to stop", true, nil, []string{"read 0 0", "read 0 1"}, true},
		{"one that did not have the partition", true, []string{"t-1"}, []string{"read 0 0", "read 0 1"}, true},
		{"one in the middle", true, []string{"t-0"}, []string{"read 0 0", "read 0 2"}, true},
		{"two records", true, []string{"t-0"}, []string{"read 0 0"}, true},
	} {
		m := memberThat(row.lines...)
		m.drops, m.left = row.drops, row.left
		if err := unread(ends, []*stockMember{others, m}); (err != nil) != row.lost {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

func TestOnlyWhatAClientOwnsUpToIsExcused(t *testing.T) {
	for _, row := range []struct {
		name string
		back setback
		bad  bool
	}{
		{"to what a member committed astray", setback{3, 20, 10}, false},
		{"to something else", setback{3, 20, 11}, true},
		{"in another partition", setback{4, 20, 10}, true},
	} {
		w := &commitWatch{cancel: func() {}, seen: true, result: make(chan []setback, 1)}
		w.result <- []setback{row.back}
		if err := w.end([]*stockMember{memberThat(), memberThat("astray 3 10")}); (err != nil) != row.bad {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	w := &commitWatch{cancel: func() {}, result: make(chan []setback, 1)}
	w.result <- nil
	if err := w.end(nil); err == nil {
		t.Error("a group that has committed nothing passes")
	}
}
