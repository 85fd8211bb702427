package tools

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// screen is the status for a person: what asks for attention has a line of its own.
func (s *ClusterStatus) screen(now time.Time) string {
	var b strings.Builder
	verdict := "healthy"
	if !s.Healthy() {
		verdict = "NEEDS ATTENTION"
	}
	fmt.Fprintf(&b, "Cluster %s: %s\n", s.ClusterID, verdict)
	controller := "none"
	if s.Controller >= 0 {
		controller = fmt.Sprint(s.Controller)
	}
	var voters []string
	for _, v := range s.Voters {
		voters = append(voters, fmt.Sprint(v.NodeID))
	}
	fmt.Fprintf(&b, "Controller: %s (voters %s)\n", controller, strings.Join(voters, ","))
	fmt.Fprintf(&b, "Topics: %d  Partitions: %d  Offline: %d  Under-replicated: %d  Under min ISR: %d\n", s.Topics, s.Partitions, len(s.Offline),
		len(s.UnderReplicated), len(s.UnderMinISR))
	s.writeBrokers(&b, now)
	for _, list := range []struct {
		name string
		tps  []topicPartition
	}{{"Offline", s.Offline}, {"Under min ISR", s.UnderMinISR}, {"Under-replicated", s.UnderReplicated}} {
		if len(list.tps) > 0 {
			fmt.Fprintf(&b, "%s: %s%s\n", list.name, joinPartitions(list.tps[:min(len(list.tps), statusListMax)], " "), more(len(list.tps)))
		}
	}
	s.writeStores(&b)
	if s.Losses > 0 {
		fmt.Fprintf(&b, "Losses not dealt with: %d ranges, %d records; `cairn losses` lists them, `cairn recover` saves what is left\n", s.Losses, s.LostRecords)
	}
	s.writeGroups(&b)
	for _, text := range s.Unanswered[:min(len(s.Unanswered), statusListMax)] {
		fmt.Fprintf(&b, "No answer about %s\n", text)
	}
	return b.String()
}

// writeStores names the brokers whose disks are nearly full, and what is damaged.
func (s *ClusterStatus) writeStores(b *strings.Builder) {
	for _, br := range s.Brokers {
		if br.SpaceLevel > 0 {
			refused := "records are refused"
			if br.SpaceLevel > 1 {
				refused = "its replicas stand still"
			}
			fmt.Fprintf(b, "Disk of broker %d is nearly full: %s until %s are free (log.min.free.bytes); delete records or topics, or make room beside them\n",
				br.ID, refused, bytesText(br.MinFree))
		}
		if n := len(br.Damaged); n > 0 {
			fmt.Fprintf(b, "Damaged on broker %d, until copied anew from the others: %s%s\n", br.ID, joinPartitions(br.Damaged[:min(n, statusListMax)], " "), more(n))
		}
	}
}

func more(n int) string {
	if n <= statusListMax {
		return ""
	}
	return fmt.Sprintf(" and %d more", n-statusListMax)
}

// shownBrokers are as many as a screen has room for, those first that ask for attention.
func (s *ClusterStatus) shownBrokers() []brokerStatus {
	if len(s.Brokers) <= statusBrokersMax {
		return s.Brokers
	}
	list := slices.Clone(s.Brokers)
	slices.SortStableFunc(list, func(a, b brokerStatus) int {
		switch x, y := a.needsAttention(), b.needsAttention(); {
		case x == y:
			return 0
		case x:
			return -1
		default:
			return 1
		}
	})
	return list[:statusBrokersMax]
}

func (s *ClusterStatus) writeBrokers(b *strings.Builder, now time.Time) {
	t := &table{}
	for _, head := range []string{"BROKER", "ADDRESS", "STATE", "LEADERS", "REPLICAS", "OUT-OF-SYNC", "STORED", "DISK-FREE", "SCRUBBED"} {
		t.column(head, len(head))
	}
	shown := s.shownBrokers()
	for _, br := range shown {
		state := "live"
		if br.Fenced {
			state = "FENCED"
		}
		t.row(fmt.Sprint(br.ID), br.Address, state, fmt.Sprint(br.Leaders), fmt.Sprint(br.Replicas), fmt.Sprint(br.Behind), bytesText(br.Stored), freeText(br), scrubText(br, now))
	}
	t.write(b)
	if n := len(s.Brokers) - len(shown); n > 0 {
		fmt.Fprintf(b, "%d more brokers; `cairn status --json` has all\n", n)
	}
}

func (s *ClusterStatus) writeGroups(b *strings.Builder) {
	if len(s.Groups) == 0 {
		return
	}
	t := &table{}
	for _, head := range []string{"GROUP", "STATE", "MEMBERS", "LAG"} {
		t.column(head, len(head))
	}
	for _, g := range s.Groups[:min(len(s.Groups), statusListMax)] {
		t.row(g.Group, g.State, fmt.Sprint(g.Members), fmt.Sprint(g.Lag))
	}
	t.write(b)
	if len(s.Groups) > statusListMax {
		fmt.Fprintf(b, "%d more groups; `cairn groups describe --all-groups` shows them\n", len(s.Groups)-statusListMax)
	}
}

// bytesText is a size for a person, in powers of 1024.
func bytesText(n int64) string {
	if n < 0 {
		return missing
	}
	units, v := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}, float64(n)
	i := 0
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}

// scrubText is how long ago the broker had last checked all that it stores.
func scrubText(b brokerStatus, now time.Time) string {
	if b.ScrubEndedMs == 0 {
		return missing
	}
	switch age := now.Sub(time.UnixMilli(b.ScrubEndedMs)); {
	case age < time.Hour:
		return fmt.Sprintf("%d min ago", max(age, 0)/time.Minute)
	case age < 48*time.Hour:
		return fmt.Sprintf("%d h ago", age/time.Hour)
	default:
		return fmt.Sprintf("%d days ago", age/(24*time.Hour))
	}
}

func freeText(b brokerStatus) string {
	if b.Total <= 0 {
		return missing
	}
	return fmt.Sprintf("%s (%d %%)", bytesText(b.Usable), b.Usable*100/b.Total)
}
