package group

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"cairn/broker/group/assignor"
)

// regexRefreshMin is how long a resolved regular expression stays as it is, whatever topics come, as in Kafka.
const regexRefreshMin = 10 * time.Second

// The dynamic configs of a group that concern the consumer protocol.
const (
	ConsumerSessionTimeoutConfig     = "consumer.session.timeout.ms"
	ConsumerHeartbeatIntervalConfig  = "consumer.heartbeat.interval.ms"
	ConsumerAssignmentIntervalConfig = "consumer.assignment.interval.ms"
)

// MigrationPolicy says which way a group may change its protocol while it has members.
type MigrationPolicy string

// The policies of group.consumer.migration.policy.
const (
	MigrateBothWays MigrationPolicy = "bidirectional"
	MigrateUp       MigrationPolicy = "upgrade"
	MigrateDown     MigrationPolicy = "downgrade"
	MigrateNot      MigrationPolicy = "disabled"
)

func (p MigrationPolicy) up() bool   { return p == MigrateBothWays || p == MigrateUp }
func (p MigrationPolicy) down() bool { return p == MigrateBothWays || p == MigrateDown }

// ParseMigrationPolicy reads a policy, in any case.
func ParseMigrationPolicy(s string) (MigrationPolicy, error) {
	p := MigrationPolicy(strings.ToLower(s))
	switch p {
	case MigrateBothWays, MigrateUp, MigrateDown, MigrateNot:
		return p, nil
	}
	return "", fmt.Errorf("group.consumer.migration.policy %q: want bidirectional, upgrade, downgrade or disabled", s)
}

// ConsumerConfig is how groups of the consumer protocol behave.
type ConsumerConfig struct {
	SessionTimeout        time.Duration   // group.consumer.session.timeout.ms
	SessionTimeoutMin     time.Duration   // group.consumer.min.session.timeout.ms
	SessionTimeoutMax     time.Duration   // group.consumer.max.session.timeout.ms
	HeartbeatInterval     time.Duration   // group.consumer.heartbeat.interval.ms
	HeartbeatIntervalMin  time.Duration   // group.consumer.min.heartbeat.interval.ms
	HeartbeatIntervalMax  time.Duration   // group.consumer.max.heartbeat.interval.ms
	MaxSize               int             // group.consumer.max.size
	Assignors             []string        // group.consumer.assignors; the first is the default
	AssignmentInterval    time.Duration   // group.consumer.assignment.interval.ms
	AssignmentIntervalMin time.Duration   // group.consumer.min.assignment.interval.ms
	AssignmentIntervalMax time.Duration   // group.consumer.max.assignment.interval.ms
	RegexRefresh          time.Duration   // group.consumer.regex.refresh.interval.ms
	Migration             MigrationPolicy // group.consumer.migration.policy
}

// DefaultConsumerConfig has Kafka's defaults.
func DefaultConsumerConfig() ConsumerConfig {
	return ConsumerConfig{
		SessionTimeout: 45 * time.Second, SessionTimeoutMin: 45 * time.Second, SessionTimeoutMax: time.Minute,
		HeartbeatInterval: 5 * time.Second, HeartbeatIntervalMin: 5 * time.Second, HeartbeatIntervalMax: 15 * time.Second,
		MaxSize:            1<<31 - 1,
		Assignors:          []string{assignor.Uniform, assignor.Range},
		AssignmentInterval: time.Second, AssignmentIntervalMax: 15 * time.Second,
		RegexRefresh: 10 * time.Minute,
		Migration:    MigrateBothWays,
	}
}

// Validate tells all that is wrong.
func (c ConsumerConfig) Validate() error {
	var errs []error
	for _, r := range []struct {
		name          string
		at, low, high time.Duration
	}{
		{"session.timeout.ms", c.SessionTimeout, c.SessionTimeoutMin, c.SessionTimeoutMax},
		{"heartbeat.interval.ms", c.HeartbeatInterval, c.HeartbeatIntervalMin, c.HeartbeatIntervalMax},
		{"assignment.interval.ms", c.AssignmentInterval, c.AssignmentIntervalMin, c.AssignmentIntervalMax},
	} {
		if r.at < r.low || r.at > r.high {
			errs = append(errs, fmt.Errorf("group.consumer.%s %d is not between group.consumer.min.%s %d and group.consumer.max.%s %d",
				r.name, r.at.Milliseconds(), r.name, r.low.Milliseconds(), r.name, r.high.Milliseconds()))
		}
	}
	if c.HeartbeatInterval >= c.SessionTimeout || c.HeartbeatInterval <= 0 {
		errs = append(errs, fmt.Errorf("group.consumer.heartbeat.interval.ms %d is not between 1 and group.consumer.session.timeout.ms %d",
			c.HeartbeatInterval.Milliseconds(), c.SessionTimeout.Milliseconds()))
	}
	if c.MaxSize < 1 {
		errs = append(errs, errors.New("group.consumer.max.size is below 1"))
	}
	if c.RegexRefresh < regexRefreshMin {
		errs = append(errs, fmt.Errorf("group.consumer.regex.refresh.interval.ms %d is below %d", c.RegexRefresh.Milliseconds(), regexRefreshMin.Milliseconds()))
	}
	if len(c.Assignors) == 0 {
		errs = append(errs, errors.New("group.consumer.assignors is empty"))
	}
	for _, name := range c.Assignors {
		if _, ok := assignor.Lookup(name); !ok {
			errs = append(errs, fmt.Errorf("group.consumer.assignors: no assignor %q, there are %s and %s", name, assignor.Uniform, assignor.Range))
		}
	}
	if _, err := ParseMigrationPolicy(string(c.Migration)); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// offers says whether members may ask for the assignor.
func (c ConsumerConfig) offers(name string) bool { return slices.Contains(c.Assignors, name) }

// GroupConfig is a dynamic config that single groups may have, in milliseconds.
type GroupConfig struct {
	Name     string
	Default  time.Duration // the broker's
	Min, Max time.Duration
}

// GroupConfigs lists the dynamic configs of groups, by name.
func (c ConsumerConfig) GroupConfigs() []GroupConfig {
	return []GroupConfig{
		{ConsumerAssignmentIntervalConfig, c.AssignmentInterval, c.AssignmentIntervalMin, c.AssignmentIntervalMax},
		{ConsumerHeartbeatIntervalConfig, c.HeartbeatInterval, c.HeartbeatIntervalMin, c.HeartbeatIntervalMax},
		{ConsumerSessionTimeoutConfig, c.SessionTimeout, c.SessionTimeoutMin, c.SessionTimeoutMax},
	}
}

// ValidateGroup checks all dynamic configs of a group together.
func (c ConsumerConfig) ValidateGroup(configs map[string]string) error {
	known := c.GroupConfigs()
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		i := slices.IndexFunc(known, func(d GroupConfig) bool { return d.Name == name })
		if i < 0 {
			return fmt.Errorf("unknown group config name: %s", name)
		}
		d := known[i]
		ms, err := strconv.ParseInt(configs[name], 10, 32)
		if err != nil {
			return fmt.Errorf("%s %q: want milliseconds", name, configs[name])
		}
		if v := time.Duration(ms) * time.Millisecond; v < d.Min || v > d.Max {
			return fmt.Errorf("%s %d is not between %d and %d, which the broker's group.%s allow", name, ms, d.Min.Milliseconds(), d.Max.Milliseconds(),
				strings.Replace(name, "consumer.", "consumer.{min,max}.", 1))
		}
	}
	if c.groupValue(configs, ConsumerHeartbeatIntervalConfig) >= c.groupValue(configs, ConsumerSessionTimeoutConfig) {
		return fmt.Errorf("%s must be below %s", ConsumerHeartbeatIntervalConfig, ConsumerSessionTimeoutConfig)
	}
	return nil
}

// groupValue is a group's own value of a dynamic config within the broker's bounds, or the broker's value.
func (c ConsumerConfig) groupValue(configs map[string]string, name string) time.Duration {
	for _, d := range c.GroupConfigs() {
		if d.Name != name {
			continue
		}
		ms, err := strconv.ParseInt(configs[name], 10, 32)
		if err != nil {
			return d.Default
		}
		return min(max(time.Duration(ms)*time.Millisecond, d.Min), d.Max)
	}
	panic("BUG: no group config " + name)
}

func (m *Machine) groupValue(group, name string) time.Duration {
	var configs map[string]string
	if m.cfg.GroupConfig != nil {
		configs = m.cfg.GroupConfig(group)
	}
	return m.cfg.Consumer.groupValue(configs, name)
}

func (m *Machine) consumerSessionTimeout(group string) time.Duration {
	return m.groupValue(group, ConsumerSessionTimeoutConfig)
}

func (m *Machine) consumerHeartbeatInterval(group string) time.Duration {
	return m.groupValue(group, ConsumerHeartbeatIntervalConfig)
}

func (m *Machine) consumerAssignmentInterval(group string) time.Duration {
	return m.groupValue(group, ConsumerAssignmentIntervalConfig)
}
