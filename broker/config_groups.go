package broker

import (
	"errors"
	"fmt"
	"time"

	"cairn/broker/group"
)

// groups reads the properties of consumer groups.
func (v valueReader) groups() group.Config {
	c := group.DefaultConfig()
	c.InitialRebalanceDelay = v.millis("group.initial.rebalance.delay.ms")
	c.SessionTimeoutMin = v.millis("group.min.session.timeout.ms")
	c.SessionTimeoutMax = v.millis("group.max.session.timeout.ms")
	c.GroupMaxSize = int(v.number("group.max.size"))
	c.OffsetsRetention = time.Duration(v.number("offsets.retention.minutes")) * time.Minute
	c.OffsetsCheck = v.millis("offsets.retention.check.interval.ms")
	c.OffsetMetadataBytes = int(v.number("offset.metadata.max.bytes"))
	c.Consumer = v.consumerGroups()
	return c
}

// checkGroups checks what the single properties of consumer groups do not tell.
func (c *Config) checkGroups() error {
	var errs []error
	for _, err := range c.Groups.Check() {
		errs = append(errs, fmt.Errorf("%w: %w", errConfig, err))
	}
	return errors.Join(errs...)
}
