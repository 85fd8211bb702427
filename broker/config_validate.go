package broker

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"cairn/broker/topicconfig"
)

// Validate checks what single values do not show, and joins all errors.
func (c *Config) Validate() error {
	v := valueReader{c.values}
	errs := []error{c.validateRoles(v), c.validateDataDir(v), c.validateTimes(), c.checkGroups()}
	if c.MetricsListener != "" {
		if _, _, err := net.SplitHostPort(c.MetricsListener); err != nil {
			errs = append(errs, fmt.Errorf("%w: metrics.listener=%s: want host:port", errConfig, c.MetricsListener))
		}
	}
	if c.Profiles && c.MetricsListener == "" {
		errs = append(errs, fmt.Errorf("%w: metrics.profiles.enable needs metrics.listener", errConfig))
	}
	if c.RequestMemoryBytes < int64(smallFrame) {
		errs = append(errs, fmt.Errorf("%w: queued.max.request.bytes=%d: must be -1 or at least %d", errConfig, c.RequestMemoryBytes, smallFrame))
	}
	if c.DefaultReplicationFactor < 1 {
		errs = append(errs, fmt.Errorf("%w: default.replication.factor=%d: must be at least 1", errConfig, c.DefaultReplicationFactor))
	}
	if _, err := parseOverrides(v.text("max.connections.per.ip.overrides")); err != nil {
		errs = append(errs, err)
	}
	if _, err := topicconfig.Parse(topicconfig.Layers{Static: c.topicLayer()}); err != nil {
		errs = append(errs, fmt.Errorf("%w: %w", errConfig, err))
	}
	return errors.Join(errs...)
}

func (c *Config) validateRoles(v valueReader) error {
	var errs []error
	if !c.BrokerRole && !c.ControllerRole {
		errs = append(errs, fmt.Errorf("%w: process.roles is empty: want broker, controller or both", errConfig))
	}
	if id := v.number("broker.id"); id != -1 && id != int64(c.NodeID) {
		errs = append(errs, fmt.Errorf("%w: broker.id=%d contradicts node.id=%d", errConfig, id, c.NodeID))
	}
	names := topicconfig.SplitList(v.text("controller.listener.names"))
	has := slices.ContainsFunc(c.Listeners, func(l ListenerConfig) bool { return l.Controller })
	switch {
	case c.ControllerRole && len(names) > 0 && !has && len(c.Listeners) > 0:
		errs = append(errs, fmt.Errorf("%w: controller.listener.names=%s: none of them is in listeners", errConfig, strings.Join(names, ",")))
	case !c.ControllerRole && has:
		errs = append(errs, fmt.Errorf("%w: a controller listener in listeners, but process.roles has no controller", errConfig))
	}
	if !c.BrokerRole && slices.ContainsFunc(c.Listeners, func(l ListenerConfig) bool { return !l.Controller }) {
		errs = append(errs, fmt.Errorf("%w: process.roles=controller, but listeners has more than controller listeners", errConfig))
	}
	return errors.Join(errs...)
}

func (c *Config) validateDataDir(v valueReader) error {
	dirs := topicconfig.SplitList(c.DataDir)
	switch {
	case len(dirs) == 0:
		return fmt.Errorf("%w: log.dirs is empty", errConfig)
	case len(dirs) > 1:
		return fmt.Errorf("%w: log.dirs=%s: exactly one data directory is supported", errConfig, c.DataDir)
	}
	if m := v.text("metadata.log.dir"); m != "" && filepath.Clean(m) != filepath.Clean(c.DataDir) {
		return fmt.Errorf("%w: metadata.log.dir=%s: it must be the data directory %s", errConfig, m, c.DataDir)
	}
	return nil
}

func (c *Config) validateTimes() error {
	var errs []error
	for _, t := range []struct {
		name string
		d    time.Duration
	}{
		{"broker.heartbeat.interval.ms", c.HeartbeatInterval},
		{"broker.session.timeout.ms", c.SessionTimeout},
		{"connections.max.idle.ms", c.MaxIdle},
		{"request.timeout.ms", c.RequestTimeout},
		{"initial.broker.registration.timeout.ms", c.RegistrationTimeout},
	} {
		if t.d <= 0 {
			errs = append(errs, fmt.Errorf("%w: %s=%d: must be positive", errConfig, t.name, t.d.Milliseconds()))
		}
	}
	if c.HeartbeatInterval >= c.SessionTimeout {
		errs = append(errs, fmt.Errorf("%w: broker.heartbeat.interval.ms=%d must be below broker.session.timeout.ms=%d",
			errConfig, c.HeartbeatInterval.Milliseconds(), c.SessionTimeout.Milliseconds()))
	}
	return errors.Join(errs...)
}

// parseOverrides reads max.connections.per.ip.overrides: "address:number,...".
func parseOverrides(text string) (map[string]int, error) {
	m := map[string]int{}
	for _, entry := range topicconfig.SplitList(text) {
		i := strings.LastIndexByte(entry, ':')
		n, err := strconv.Atoi(entry[i+1:])
		if i <= 0 || err != nil || n < 0 {
			return nil, fmt.Errorf("%w: max.connections.per.ip.overrides: %q: want address:number", errConfig, entry)
		}
		m[strings.Trim(entry[:i], "[]")] = n
	}
	return m, nil
}
