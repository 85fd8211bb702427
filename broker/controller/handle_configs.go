package controller

import (
	"context"
	"slices"
	"strconv"

	"cairn/broker/topicconfig"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const minInsyncReplicas = "min.insync.replicas"

// incrementalAlterConfigs answers IncrementalAlterConfigs.
func (c *Controller) incrementalAlterConfigs(ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest) *kmsg.IncrementalAlterConfigsResponse {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	changes := make([]plannedChange, len(req.Resources))
	for i, r := range req.Resources {
		p := &changes[i]
		p.change = ResourceChange{Type: ResourceType(r.ResourceType), Name: r.ResourceName}
		for _, kv := range r.Configs {
			p.add(kv.Name, OpType(kv.Op), kv.Value)
		}
	}
	for i, res := range c.changeConfigs(ctx, changes, req.ValidateOnly) {
		rr := kmsg.NewIncrementalAlterConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
		setError(res, &rr.ErrorCode, &rr.ErrorMessage)
		resp.Resources = append(resp.Resources, rr)
	}
	return resp
}

// alterConfigs answers the older AlterConfigs, which names all configs a resource is to have.
func (c *Controller) alterConfigs(ctx context.Context, req *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	changes := make([]plannedChange, len(req.Resources))
	for i, r := range req.Resources {
		p := &changes[i]
		p.change = ResourceChange{Type: ResourceType(r.ResourceType), Name: r.ResourceName, Replace: true}
		for _, kv := range r.Configs {
			p.add(kv.Name, OpSet, kv.Value)
		}
	}
	for i, res := range c.changeConfigs(ctx, changes, req.ValidateOnly) {
		rr := kmsg.NewAlterConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = req.Resources[i].ResourceType, req.Resources[i].ResourceName
		setError(res, &rr.ErrorCode, &rr.ErrorMessage)
		resp.Resources = append(resp.Resources, rr)
	}
	return resp
}

// plannedChange is one resource of a request on its way to a command.
type plannedChange struct {
	change ResourceChange
	bad    ItemResult
}

// add adds an operation; the first one that makes no sense refuses the resource.
func (p *plannedChange) add(name string, op OpType, value *string) {
	twice := slices.ContainsFunc(p.change.Ops, func(o ConfigOp) bool { return o.Name == name })
	switch {
	case p.bad.Code != 0:
		return
	case twice:
		p.bad = refuseItem(kerr.InvalidRequest, "Error due to duplicate config keys: %s", name)
	case value == nil && op != OpDelete:
		p.bad = refuseItem(kerr.InvalidRequest, "Null value not supported for : %s", name)
	case op < OpSet || op > OpSubtract:
		p.bad = refuseItem(kerr.InvalidRequest, "Unknown operation type %d for %s", op, name)
	}
	o := ConfigOp{Name: name, Op: op}
	if value != nil && op != OpDelete {
		o.Value = *value
	}
	p.change.Ops = append(p.change.Ops, o)
}

// changeConfigs checks and proposes the changes and returns the result of each. One call at a time: the values checked
// here are the ones that Apply will compute, as long as nobody else changes them in between.
func (c *Controller) changeConfigs(ctx context.Context, changes []plannedChange, validateOnly bool) []ItemResult {
	if err := c.configs.acquire(ctx); err != nil {
		return slices.Repeat([]ItemResult{refuseItem(kerr.RequestTimedOut, "Another config change is under way.")}, len(changes))
	}
	defer c.configs.release()
	active := c.Active()
	img := c.store.Image()
	results := make([]ItemResult, len(changes))
	var cmd AlterConfigs
	var answers []int
	for i := range changes {
		p := &changes[i]
		same := func(o plannedChange) bool { return o.change.Type == p.change.Type && o.change.Name == p.change.Name }
		switch {
		case !active:
			p.bad = refuseItem(kerr.NotController, "This node is not the active controller.")
		case slices.ContainsFunc(changes[:i], same) || slices.ContainsFunc(changes[i+1:], same):
			p.bad = refuseItem(kerr.InvalidRequest, "Each resource must appear at most once.")
		case p.bad.Code == 0:
			p.bad = c.checkChange(img, &p.change)
		}
		if results[i] = p.bad; p.bad.Code == 0 {
			answers = append(answers, i)
			cmd.Resources = append(cmd.Resources, p.change)
		}
	}
	if len(answers) == 0 || validateOnly {
		return results
	}
	for i, r := range c.proposeItems(ctx, cmd, len(answers)) {
		results[answers[i]] = r
	}
	return results
}

// checkChange checks a resource's change against its present configs and completes the operations.
func (c *Controller) checkChange(img *Image, ch *ResourceChange) ItemResult {
	switch ch.Type {
	case TopicResource:
		return checkTopicChange(img, ch)
	case BrokerResource:
		return c.checkBrokerChange(img, ch)
	case GroupResource:
		return c.checkGroupChange(img, ch)
	default:
		return refuseItem(kerr.InvalidRequest, "Resource type %d cannot be altered here.", ch.Type)
	}
}

func checkTopicChange(img *Image, ch *ResourceChange) ItemResult {
	if bad := checkTopicName(ch.Name); bad.Code != 0 {
		return bad
	}
	if img.Topics[ch.Name] == nil {
		return refuseItem(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", ch.Name)
	}
	for i := range ch.Ops {
		op := &ch.Ops[i]
		def, ok := topicconfig.Lookup(op.Name)
		if !ok && op.Op != OpDelete {
			return refuseItem(kerr.InvalidConfig, "Unknown topic config name: %s", op.Name)
		}
		if bad := completeOp(op, def); bad.Code != 0 {
			return bad
		}
	}
	next, _ := nextConfigs(img.TopicConfigs(ch.Name), *ch)
	if err := topicconfig.Validate(next); err != nil {
		return refuseItem(kerr.InvalidConfig, "%v", err)
	}
	return ItemResult{}
}

// completeOp gives append and subtract the list they start from, and refuses them for what is no list.
func completeOp(op *ConfigOp, def topicconfig.Def) ItemResult {
	if op.Op != OpAppend && op.Op != OpSubtract {
		return ItemResult{}
	}
	if def.Type != topicconfig.List {
		return refuseItem(kerr.InvalidConfig, "Can't append to or subtract from %s because its type is not LIST.", op.Name)
	}
	op.Default = def.Default
	return ItemResult{}
}

func (c *Controller) checkBrokerChange(img *Image, ch *ResourceChange) ItemResult {
	cluster := ch.Name == ""
	if !cluster {
		n, err := strconv.ParseInt(ch.Name, 10, 32)
		if err != nil || strconv.FormatInt(n, 10) != ch.Name {
			return refuseItem(kerr.InvalidRequest, "Node id must be an integer, but it is: %s", ch.Name)
		}
		if img.Brokers[ids.NodeID(n)] == nil {
			return refuseItem(kerr.BrokerIDNotRegistered, "No broker with id %s found.", ch.Name)
		}
	}
	for i := range ch.Ops {
		op := &ch.Ops[i]
		if op.Name == minInsyncReplicas && (!cluster || op.Op == OpDelete) {
			return refuseItem(kerr.InvalidConfig, "%s can be set for the whole cluster only, and not removed there.", minInsyncReplicas)
		}
		def, _, _ := topicconfig.LookupServer(op.Name)
		if bad := completeOp(op, def); bad.Code != 0 {
			return bad
		}
	}
	before := img.Configs[Resource{ch.Type, ch.Name}]
	next, _ := nextConfigs(before, *ch)
	if _, had := before[minInsyncReplicas]; had && cluster && ch.Replace {
		if _, has := next[minInsyncReplicas]; !has {
			return refuseItem(kerr.InvalidConfig, "%s cannot be removed for the whole cluster.", minInsyncReplicas)
		}
	}
	for _, op := range ch.Ops {
		if v, set := next[op.Name]; set && op.Op != OpDelete {
			if err := c.cfg.ValidateBrokerConfig(op.Name, v); err != nil {
				return refuseItem(kerr.InvalidConfig, "%v", err)
			}
		}
	}
	return ItemResult{}
}

// checkGroupChange checks the configs of a group, which need not exist.
func (c *Controller) checkGroupChange(img *Image, ch *ResourceChange) ItemResult {
	if ch.Name == "" {
		return refuseItem(kerr.InvalidRequest, "Groups have no default configs: name the group.")
	}
	for i := range ch.Ops {
		if bad := completeOp(&ch.Ops[i], topicconfig.Def{}); bad.Code != 0 { // none of them is a list
			return bad
		}
	}
	next, _ := nextConfigs(img.GroupConfigs(ch.Name), *ch)
	if err := c.cfg.ValidateGroupConfigs(next); err != nil {
		return refuseItem(kerr.InvalidConfig, "%v", err)
	}
	return ItemResult{}
}
