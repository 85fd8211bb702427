package tools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// missing is what Kafka's tools print where there is no value.
const missing = "-"

// columnWidth is the least width of a column, as in Kafka's tools.
const columnWidth = 15

// errNoGroup is returned for a group that is not there.
var errNoGroup = errors.New("does not exist; `cairn groups list` shows those that do")

// GroupSelection picks groups.
type GroupSelection struct {
	Groups []string
	All    bool
}

func (s GroupSelection) check() error {
	switch {
	case s.All && len(s.Groups) > 0:
		return errors.New("--all-groups and --group exclude each other")
	case !s.All && len(s.Groups) == 0:
		return errors.New("say which groups: --group NAME, which may be repeated, or --all-groups")
	}
	return nil
}

// find returns the names of the groups, sorted.
func (s GroupSelection) find(ctx context.Context, cl *kgo.Client) ([]string, error) {
	if !s.All {
		names := slices.Sorted(slices.Values(s.Groups))
		return slices.Compact(names), nil
	}
	list, err := listGroups(ctx, cl, nil, nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, g := range list {
		names = append(names, g.Group)
	}
	return names, nil
}

// ListGroupsOptions picks what is shown of which groups.
type ListGroupsOptions struct {
	ShowState, ShowType bool
	// States and Types let only such groups pass, in any case; none: all.
	States, Types []string
}

// listedGroup is the JSON form of a listed group.
type listedGroup struct {
	Group    string `json:"group"`
	Type     string `json:"type"`
	State    string `json:"state"`
	Protocol string `json:"protocolType"`
}

// check refuses states and types that no group ever has: nothing would be listed for them.
func (o ListGroupsOptions) check() error {
	for _, list := range []struct {
		flag        string
		given, want []string
	}{
		{"--in-state", o.States, []string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Assigning", "Reconciling", "Dead"}},
		{"--of-type", o.Types, []string{"Classic", "Consumer"}},
	} {
		for _, text := range list.given {
			if !slices.ContainsFunc(list.want, func(w string) bool { return strings.EqualFold(w, text) }) {
				return fmt.Errorf("%s %s: want one of %s", list.flag, text, strings.Join(list.want, ", "))
			}
		}
	}
	return nil
}

// ListGroups prints the groups of all brokers.
func ListGroups(ctx context.Context, conn Connection, o ListGroupsOptions, out Output) error {
	if err := o.check(); err != nil {
		return UsageError{err}
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		list, err := listGroups(ctx, cl, o.States, o.Types)
		if err != nil {
			return err
		}
		if out.JSON {
			return out.writeJSON(list)
		}
		return o.print(list, out)
	})
}

func (o ListGroupsOptions) print(list []listedGroup, out Output) error {
	var b strings.Builder
	if !o.ShowState && !o.ShowType {
		for _, g := range list {
			b.WriteString(g.Group + "\n")
		}
		_, err := out.Out.Write([]byte(b.String()))
		return err
	}
	width := columnWidth
	for _, g := range list {
		width = max(width, len(g.Group))
	}
	line := func(group, kind, state string) {
		fmt.Fprintf(&b, "%-*s", width+10, group) // Kafka's width
		if o.ShowType {
			fmt.Fprintf(&b, " %-20s", kind)
		}
		if o.ShowState {
			fmt.Fprintf(&b, " %-20s", state)
		}
		b.WriteString("\n")
	}
	line("GROUP", "TYPE", "STATE")
	for _, g := range list {
		line(g.Group, g.Type, g.State)
	}
	_, err := out.Out.Write([]byte(b.String()))
	return err
}

// listGroups asks all brokers. A broker that is still reading its groups makes it an error: a list with holes is none.
func listGroups(ctx context.Context, cl *kgo.Client, states, types []string) ([]listedGroup, error) {
	req := kmsg.NewPtrListGroupsRequest()
	req.StatesFilter, req.TypesFilter = states, types
	list := []listedGroup{}
	for _, shard := range cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, fmt.Errorf("asking broker %d for its groups: %w", shard.Meta.NodeID, shard.Err)
		}
		resp := shard.Resp.(*kmsg.ListGroupsResponse)
		if err := brokerError(resp.ErrorCode, nil); err != nil {
			return nil, fmt.Errorf("asking broker %d for its groups: %w", shard.Meta.NodeID, err)
		}
		for _, g := range resp.Groups {
			list = append(list, listedGroup{g.Group, g.GroupType, g.GroupState, g.ProtocolType})
		}
	}
	slices.SortFunc(list, func(a, b listedGroup) int { return strings.Compare(a.Group, b.Group) })
	return slices.CompactFunc(list, func(a, b listedGroup) bool { return a.Group == b.Group }), nil
}

// DeleteGroups deletes groups without members and prints Kafka's lines about it.
func DeleteGroups(ctx context.Context, conn Connection, s GroupSelection, out Output) error {
	if err := s.check(); err != nil {
		return UsageError{err}
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		names, err := s.find(ctx, cl)
		if err != nil {
			return err
		}
		resp, err := kadm.NewClient(cl).DeleteGroups(ctx, names...)
		if err != nil {
			return err
		}
		var result deletedGroups
		for _, name := range names {
			if r := resp[name]; r.Err != nil {
				result.Failed = append(result.Failed, failedGroup{name, groupException(r.Err)})
				continue
			}
			result.Deleted = append(result.Deleted, name)
		}
		return result.print(out)
	})
}

// deletedGroups is the JSON form of a deletion.
type deletedGroups struct {
	Deleted []string      `json:"deleted"`
	Failed  []failedGroup `json:"failed"`
}

type failedGroup struct {
	Group string `json:"group"`
	Error string `json:"error"`
}

func (d deletedGroups) print(out Output) error {
	var failed error
	if len(d.Failed) > 0 {
		failed = fmt.Errorf("%d group(s) could not be deleted", len(d.Failed))
	}
	if out.JSON {
		return errors.Join(out.writeJSON(d), failed)
	}
	var b strings.Builder
	quoted := "'" + strings.Join(d.Deleted, "', '") + "'"
	switch {
	case len(d.Failed) == 0 && len(d.Deleted) > 0:
		fmt.Fprintf(&b, "Deletion of requested consumer groups (%s) was successful.\n", quoted)
	case len(d.Failed) > 0:
		b.WriteString("\nError: Deletion of some consumer groups failed:\n")
		for _, f := range d.Failed {
			fmt.Fprintf(&b, "* Group '%s' could not be deleted due to: %s\n", f.Group, f.Error)
		}
		if len(d.Deleted) > 0 {
			fmt.Fprintf(&b, "\nThese consumer groups were deleted successfully: %s\n", quoted)
		}
	}
	_, err := out.Out.Write([]byte(b.String()))
	return errors.Join(err, failed)
}

// groupException is how Kafka's tools print an error of a group: the Java class and its message.
func groupException(err error) string {
	const pkg = "org.apache.kafka.common.errors."
	switch {
	case errors.Is(err, kerr.GroupIDNotFound):
		return pkg + "GroupIdNotFoundException: The group id does not exist."
	case errors.Is(err, kerr.NonEmptyGroup):
		return pkg + "GroupNotEmptyException: The group is not empty."
	case errors.Is(err, kerr.GroupSubscribedToTopic):
		return pkg + "GroupSubscribedToTopicException: Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it."
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return pkg + "UnknownTopicOrPartitionException: This server does not host this topic-partition."
	}
	return err.Error()
}
