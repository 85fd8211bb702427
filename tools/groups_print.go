package tools

import (
	"fmt"
	"strconv"
	"strings"
)

// table prints columns as Kafka's tools do: padded to the widest value, at least to the given width, the last one not.
type table struct {
	heads  []string
	widths []int
	rows   [][]string
}

// column adds one; width 0: it is not padded.
func (t *table) column(head string, width int) {
	t.heads, t.widths = append(t.heads, head), append(t.widths, width)
}

func (t *table) row(values ...string) { t.rows = append(t.rows, values) }

func (t *table) write(b *strings.Builder) {
	for i, w := range t.widths {
		if w == 0 || i == len(t.widths)-1 {
			continue
		}
		for _, r := range t.rows {
			t.widths[i] = max(t.widths[i], len(r[i]))
		}
	}
	for _, r := range append([][]string{t.heads}, t.rows...) {
		b.WriteString("\n")
		for i, v := range r {
			if i > 0 {
				b.WriteString(" ")
			}
			fmt.Fprintf(b, "%-*s", t.widths[i], v)
		}
	}
	b.WriteString("\n")
}

// number prints a number, or Kafka's sign for none.
func number[T int32 | int64](n *T) string {
	if n == nil {
		return missing
	}
	return strconv.FormatInt(int64(*n), 10)
}

func orMissing(s string) string {
	if s == "" {
		return missing
	}
	return s
}

// warn says on Err what Kafka's tool says about a group's state.
func (g *groupDescription) warn(out Output) {
	switch g.State {
	case "Empty":
		out.note("\nConsumer group '%s' has no active members.", g.Group)
	case "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling":
		out.note("\nWarning: Consumer group '%s' is rebalancing.", g.Group)
	}
}

func (o DescribeGroupsOptions) print(groups []*groupDescription, out Output) error {
	for _, g := range groups {
		g.warn(out)
		var b strings.Builder
		switch {
		case o.Members:
			g.writeMembers(&b, o.Verbose)
		case o.State:
			g.writeState(&b, o.Verbose)
		default:
			g.writeOffsets(&b, o.Verbose)
		}
		if _, err := out.Out.Write([]byte(b.String())); err != nil {
			return err
		}
	}
	return nil
}

func (g *groupDescription) writeOffsets(b *strings.Builder, verbose bool) {
	if len(g.Offsets) == 0 {
		return
	}
	var t table
	t.column("GROUP", columnWidth)
	t.column("TOPIC", columnWidth)
	t.column("PARTITION", 10)
	if verbose {
		t.column("LEADER-EPOCH", columnWidth)
	}
	for _, head := range []string{"CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST"} {
		t.column(head, columnWidth)
	}
	t.column("CLIENT-ID", 0)
	for _, p := range g.Offsets {
		values := []string{g.Group, p.Topic, strconv.Itoa(int(p.Partition))}
		if verbose {
			values = append(values, number(p.LeaderEpoch))
		}
		t.row(append(values, number(p.Offset), number(p.LogEndOffset), number(p.Lag), orMissing(p.ConsumerID), orMissing(p.Host), orMissing(p.ClientID))...)
	}
	t.write(b)
}

func (g *groupDescription) writeMembers(b *strings.Builder, verbose bool) {
	if len(g.Members) == 0 {
		return
	}
	instances, upgraded, classic := false, false, false
	for _, m := range g.Members {
		instances = instances || m.InstanceID != ""
		if m.Upgraded != nil {
			upgraded, classic = upgraded || *m.Upgraded, classic || !*m.Upgraded
		}
	}
	mixed := upgraded && classic
	var t table
	t.column("GROUP", columnWidth)
	t.column("CONSUMER-ID", columnWidth)
	if instances {
		t.column("GROUP-INSTANCE-ID", 17)
	}
	t.column("HOST", columnWidth)
	t.column("CLIENT-ID", columnWidth)
	t.column("#PARTITIONS", columnWidth)
	if verbose {
		t.column("CURRENT-EPOCH", columnWidth)
		t.column("CURRENT-ASSIGNMENT", 20)
		t.column("TARGET-EPOCH", columnWidth)
		t.column("TARGET-ASSIGNMENT", 20)
	}
	if verbose && mixed {
		t.column("UPGRADED", 0)
	}
	for _, m := range g.Members {
		values := []string{g.Group, m.ConsumerID}
		if instances {
			values = append(values, m.InstanceID)
		}
		values = append(values, m.Host, m.ClientID, strconv.Itoa(len(m.Assignment)))
		if verbose {
			values = append(values, number(m.Epoch), assignmentText(m.Assignment), number(g.TargetEpoch), assignmentText(m.Target))
		}
		if verbose && mixed {
			values = append(values, upgradedText(m.Upgraded))
		}
		t.row(values...)
	}
	t.write(b)
}

func upgradedText(u *bool) string {
	if u == nil {
		return missing
	}
	return strconv.FormatBool(*u)
}

func (g *groupDescription) writeState(b *strings.Builder, verbose bool) {
	var t table
	t.column("GROUP", columnWidth)
	t.column("COORDINATOR (ID)", 25)
	t.column("ASSIGNMENT-STRATEGY", 20)
	t.column("STATE", 20)
	values := []string{g.Group, g.Coordinator.String(), orMissing(g.Assignor), g.State}
	if verbose {
		t.column("GROUP-EPOCH", columnWidth)
		t.column("TARGET-ASSIGNMENT-EPOCH", 25)
		values = append(values, number(g.Epoch), number(g.TargetEpoch))
	}
	t.column("#MEMBERS", 0)
	t.row(append(values, strconv.Itoa(len(g.Members)))...)
	t.write(b)
}
