package broker

import (
	"maps"
	"strings"

	"cairn/broker/group"
	"cairn/broker/topicconfig"
)

// consumerGroups reads the properties of groups of the consumer protocol.
func (v valueReader) consumerGroups() group.ConsumerConfig {
	return group.ConsumerConfig{
		SessionTimeout:        v.millis("group.consumer.session.timeout.ms"),
		SessionTimeoutMin:     v.millis("group.consumer.min.session.timeout.ms"),
		SessionTimeoutMax:     v.millis("group.consumer.max.session.timeout.ms"),
		HeartbeatInterval:     v.millis("group.consumer.heartbeat.interval.ms"),
		HeartbeatIntervalMin:  v.millis("group.consumer.min.heartbeat.interval.ms"),
		HeartbeatIntervalMax:  v.millis("group.consumer.max.heartbeat.interval.ms"),
		MaxSize:               int(v.number("group.consumer.max.size")),
		Assignors:             topicconfig.SplitList(v.text("group.consumer.assignors")),
		AssignmentInterval:    v.millis("group.consumer.assignment.interval.ms"),
		AssignmentIntervalMin: v.millis("group.consumer.min.assignment.interval.ms"),
		AssignmentIntervalMax: v.millis("group.consumer.max.assignment.interval.ms"),
		RegexRefresh:          v.millis("group.consumer.regex.refresh.interval.ms"),
		Migration:             group.MigrationPolicy(strings.ToLower(v.text("group.consumer.migration.policy"))),
	}
}

// assignmentInterval may be changed for the whole cluster at run time.
const assignmentInterval = "group.consumer.assignment.interval.ms"

// groupConfigs are the dynamic configs of a group, and what the brokers' dynamic configs say in their place.
func (b *Broker) groupConfigs(id string) map[string]string {
	img := b.images.Image()
	configs := img.GroupConfigs(id)
	ms, changed := img.ClusterConfigs()[assignmentInterval]
	if _, own := configs[group.ConsumerAssignmentIntervalConfig]; own || !changed {
		return configs
	}
	all := map[string]string{group.ConsumerAssignmentIntervalConfig: ms}
	maps.Copy(all, configs)
	return all
}
