package controller

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"cairn/broker/topicconfig"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

func brokerResource(node ids.NodeID) Resource {
	return Resource{BrokerResource, strconv.Itoa(int(node))}
}

func (e *edit) alterConfigs(c ResourceChange) ItemResult {
	r := Resource{c.Type, c.Name}
	switch c.Type {
	case TopicResource:
		if e.img.Topics[c.Name] == nil {
			return refuseItem(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", c.Name)
		}
	case BrokerResource, GroupResource:
	default:
		return refuseItem(kerr.InvalidRequest, "resource type %d has no configs", c.Type)
	}
	next, ok := nextConfigs(e.img.Configs[r], c)
	if !ok {
		return refuseItem(kerr.InvalidRequest, "unknown config operation")
	}
	changed := changesMinimum(e.img.Configs[r], c)
	e.setConfigs(r, next)
	if changed {
		e.minimumChanged(r)
	}
	return ItemResult{}
}

// nextConfigs returns the resource's configs after the change; false if an operation is unknown. cur is not changed.
func nextConfigs(cur map[string]string, c ResourceChange) (map[string]string, bool) {
	next := make(map[string]string, len(cur)+len(c.Ops))
	if !c.Replace {
		maps.Copy(next, cur)
	}
	for _, op := range c.Ops {
		switch op.Op {
		case OpSet:
			next[op.Name] = op.Value
		case OpDelete:
			delete(next, op.Name)
		case OpAppend, OpSubtract:
			next[op.Name] = changeList(next, op)
		default:
			return nil, false
		}
	}
	return next, true
}

// changeList adds to a list what it lacks, or removes what it has.
func changeList(configs map[string]string, op ConfigOp) string {
	v, ok := configs[op.Name]
	if !ok {
		v = op.Default
	}
	list := topicconfig.SplitList(v)
	for _, it := range topicconfig.SplitList(op.Value) {
		switch i := slices.Index(list, it); {
		case op.Op == OpAppend && i < 0:
			list = append(list, it)
		case op.Op == OpSubtract && i >= 0:
			list = slices.Delete(list, i, i+1)
		}
	}
	return strings.Join(list, ",")
}
