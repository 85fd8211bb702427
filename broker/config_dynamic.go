package broker

import (
	"fmt"
	"strconv"
	"time"
)

// validateDynamic checks a dynamic broker config: the property must exist, be one that Kafka changes at run time, and
// take the value.
func validateDynamic(name, value string) error {
	p, ok := lookupProperty(name)
	switch {
	case !ok:
		return errUnknownProperty(name)
	case p.Mode == readOnly:
		return fmt.Errorf("%w: %s cannot be changed at run time", errConfig, name)
	}
	if name == "max.connections.per.ip.overrides" {
		if _, err := parseOverrides(value); err != nil {
			return err
		}
	}
	return p.check(value)
}

// dynamicValue is the value in force of a property that can be changed at run time: this broker's, else the cluster's,
// else the configured one.
func (b *Broker) dynamicValue(name string) string {
	img := b.images.Image()
	if v, ok := img.BrokerConfigs(b.nodeID)[name]; ok {
		return v
	}
	if v, ok := img.ClusterConfigs()[name]; ok {
		return v
	}
	return valueReader{b.cfg.values}.text(name)
}

// producerExpiry is producer.id.expiration.ms in force.
func (b *Broker) producerExpiry() time.Duration {
	ms, err := strconv.ParseInt(b.dynamicValue("producer.id.expiration.ms"), 10, 64)
	if err != nil { // checked on the way in
		panic("BUG: producer.id.expiration.ms: " + err.Error())
	}
	return time.Duration(ms) * time.Millisecond
}

// connBounds returns the connection limits in force.
func (b *Broker) connBounds() connBounds {
	number := func(name string) int {
		n, err := strconv.Atoi(b.dynamicValue(name))
		if err != nil { // checked on the way in
			panic("BUG: " + name + ": " + err.Error())
		}
		return n
	}
	overrides, err := parseOverrides(b.dynamicValue("max.connections.per.ip.overrides"))
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return connBounds{total: number("max.connections"), perIP: number("max.connections.per.ip"), overrides: overrides}
}
