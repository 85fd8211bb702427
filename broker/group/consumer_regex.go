package group

import (
	"maps"
	"regexp"
	"slices"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group/records"

	"github.com/twmb/franz-go/pkg/kerr"
)

// resolvedRegex is the topics that an expression stands for.
type resolvedRegex struct {
	topics    []string // sorted
	version   int64    // of the cluster's topics when it was resolved
	timestamp int64    // when, ms since 1970
}

// compileRegex compiles an expression that must match a topic's whole name. Its syntax is RE2's, as with Kafka.
func compileRegex(expression string) (*regexp.Regexp, *Error) {
	if _, err := regexp.Compile(expression); err != nil { // by itself: what follows would hide an odd bracket
		return nil, refusal(kerr.InvalidRegularExpression, "regular expression "+expression+": "+err.Error())
	}
	re, err := regexp.Compile(`^(?:` + expression + `)$`)
	if err != nil {
		return nil, refusal(kerr.InvalidRegularExpression, "regular expression "+expression+": "+err.Error())
	}
	return re, nil
}

// resolve finds the topics that expressions stand for.
func (op *consumerOp) resolve(expressions []string) (map[string]resolvedRegex, *Error) {
	out := make(map[string]resolvedRegex, len(expressions))
	compiled := make([]*regexp.Regexp, len(expressions))
	for i, e := range expressions {
		re, refused := compileRegex(e)
		if refused != nil {
			return nil, refused
		}
		compiled[i] = re
		out[e] = resolvedRegex{version: op.m.cfg.Topics.Version(), timestamp: op.now.UnixMilli()}
	}
	for name := range op.m.cfg.Topics.Names() {
		for i, e := range expressions {
			if compiled[i].MatchString(name) {
				r := out[e]
				r.topics = append(r.topics, name)
				out[e] = r
			}
		}
	}
	for e, r := range out {
		slices.Sort(r.topics)
		out[e] = r
	}
	return out, nil
}

// setRegex notes what an expression stands for now.
func (op *consumerOp) setRegex(expression string, r resolvedRegex) {
	op.regexes = maps.Clone(op.regexes)
	op.regexes[expression] = r
	op.add(coordinator.Record{
		Key:   memberKey(records.KindRegularExpression, op.id, expression),
		Value: records.RegularExpression{Topics: r.topics, Version: r.version, Timestamp: r.timestamp}.Encode(),
	})
}

// dropRegexes removes the expressions that no member will use any more.
func (op *consumerOp) dropRegexes() {
	used := map[string]bool{}
	for m := range op.members() {
		used[m.regex()] = true
	}
	for _, e := range slices.Sorted(maps.Keys(op.regexes)) {
		if !used[e] {
			op.regexes = maps.Clone(op.regexes)
			delete(op.regexes, e)
			op.add(records.Tombstone(memberKey(records.KindRegularExpression, op.id, e)))
		}
	}
}

// updateRegexes follows a member from one expression to another, and says whether what the group subscribes to changes.
func (op *consumerOp) updateRegexes(before *consumerMember) (changed bool, e *Error) {
	was, is := before.regex(), op.updated.regex()
	if was != is {
		changed = true
		op.dropRegexes()
		if _, ok := op.regexes[is]; is != "" && !ok {
			found, e := op.resolve([]string{is})
			if e != nil {
				return false, e
			}
			op.setRegex(is, found[is])
		}
	}
	return op.refreshRegexes() || changed, nil
}

// refreshRegexes resolves all expressions anew when topics have come or gone, though not too often, and now and then in
// any case. It says whether one of them stands for other topics than before.
func (op *consumerOp) refreshRegexes() (changed bool) {
	live, version := op.live(), op.m.cfg.Topics.Version()
	if len(op.regexes) == 0 {
		return false
	}
	since, current := live.resolved, live.resolvedVersion == version
	if since.IsZero() { // a new leader goes by the records
		since, current = op.now, true
		for _, r := range op.regexes {
			since = earliest(since, time.UnixMilli(r.timestamp))
			current = current && r.version == version
		}
	}
	age := op.now.Sub(since)
	if current && age < op.m.cfg.Consumer.RegexRefresh || age < regexRefreshMin {
		return false
	}
	found, e := op.resolve(slices.Sorted(maps.Keys(op.regexes)))
	if e != nil {
		return false // each of them has been compiled before, maybe by a broker with another syntax: it stays as it is
	}
	for _, expression := range slices.Sorted(maps.Keys(found)) {
		if !slices.Equal(found[expression].topics, op.regexes[expression].topics) {
			op.setRegex(expression, found[expression])
			changed = true
		}
	}
	op.later = append(op.later, func(g *group, _ *coordinator.Effects) {
		g.live.resolved, g.live.resolvedVersion = op.now, version
	})
	return changed
}
