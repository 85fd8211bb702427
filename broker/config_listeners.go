package broker

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"cairn/broker/controller"
	"cairn/broker/topicconfig"
	"cairn/internal/ids"
)

// readListeners fills Listeners, Advertised and InterBroker.
func (c *Config) readListeners(v valueReader) error {
	listeners, err := parseListeners("listeners", v.text("listeners"))
	if err != nil {
		return err
	}
	controllers := topicconfig.SplitList(v.text("controller.listener.names"))
	if c.ControllerRole && !c.BrokerRole && len(controllers) == 0 {
		return fmt.Errorf("%w: process.roles=controller needs controller.listener.names", errConfig)
	}
	for i := range listeners {
		listeners[i].Controller = slices.Contains(controllers, listeners[i].Name)
	}
	c.Listeners = listeners
	errs := []error{checkProtocols(v, listeners)}
	if c.BrokerRole {
		errs = append(errs, c.readAdvertised(v), c.readInterBroker(v))
	} else if c.given("advertised.listeners") {
		errs = append(errs, fmt.Errorf("%w: advertised.listeners without the broker role", errConfig))
	}
	return errors.Join(errs...)
}

// parseListeners reads "NAME://host:port,...".
func parseListeners(property, text string) ([]ListenerConfig, error) {
	var list []ListenerConfig
	var errs []error
	for _, entry := range topicconfig.SplitList(text) {
		l, err := parseListener(entry)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: %s: %q: %w", errConfig, property, entry, err))
			continue
		}
		if slices.ContainsFunc(list, func(o ListenerConfig) bool { return o.Name == l.Name }) {
			errs = append(errs, fmt.Errorf("%w: %s names %s twice", errConfig, property, l.Name))
		}
		if property == "listeners" && l.Port != 0 && slices.ContainsFunc(list, func(o ListenerConfig) bool { return o.Port == l.Port && o.Host == l.Host }) {
			errs = append(errs, fmt.Errorf("%w: %s uses port %d twice", errConfig, property, l.Port))
		}
		list = append(list, l)
	}
	if len(list) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%w: %s is empty", errConfig, property))
	}
	return list, errors.Join(errs...)
}

func parseListener(entry string) (ListenerConfig, error) {
	name, address, ok := strings.Cut(entry, "://")
	if !ok || name == "" || strings.ContainsAny(name, " /:") {
		return ListenerConfig{}, errors.New("want NAME://host:port")
	}
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return ListenerConfig{}, errors.New("want NAME://host:port")
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return ListenerConfig{}, errors.New("want a port between 0 and 65535")
	}
	return ListenerConfig{Name: strings.ToUpper(name), Host: host, Port: int32(port)}, nil
}

// checkProtocols refuses listeners that are to be encrypted or authenticated: serving them in the clear would be worse
// than not serving them.
func checkProtocols(v valueReader, listeners []ListenerConfig) error {
	protocols, err := parseProtocols(v.text("listener.security.protocol.map"))
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range listeners {
		switch p, ok := protocols[l.Name]; {
		case !ok && l.Controller: // as in Kafka, where PLAINTEXT is assumed
		case !ok:
			errs = append(errs, fmt.Errorf("%w: listener %s is not in listener.security.protocol.map", errConfig, l.Name))
		case p != "PLAINTEXT":
			errs = append(errs, fmt.Errorf("%w: listener %s: security protocol %s is not available, only PLAINTEXT", errConfig, l.Name, p))
		}
	}
	if p := v.text("security.inter.broker.protocol"); p != "PLAINTEXT" {
		errs = append(errs, fmt.Errorf("%w: security.inter.broker.protocol=%s is not available, only PLAINTEXT", errConfig, p))
	}
	return errors.Join(errs...)
}

func parseProtocols(text string) (map[string]string, error) {
	m := map[string]string{}
	for _, entry := range topicconfig.SplitList(text) {
		name, protocol, ok := strings.Cut(entry, ":")
		if !ok || name == "" || !slices.Contains([]string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}, protocol) {
			return nil, fmt.Errorf("%w: listener.security.protocol.map: %q: want NAME:PROTOCOL", errConfig, entry)
		}
		m[strings.ToUpper(name)] = protocol
	}
	return m, nil
}

// readAdvertised fills Advertised: as given, else the broker listeners themselves.
func (c *Config) readAdvertised(v valueReader) error {
	var own []ListenerConfig
	for _, l := range c.Listeners {
		if !l.Controller {
			own = append(own, l)
		}
	}
	if len(own) == 0 {
		return fmt.Errorf("%w: no broker listener: controller.listener.names has all of listeners", errConfig)
	}
	if !c.given("advertised.listeners") {
		return c.advertiseOwn(own)
	}
	list, err := parseListeners("advertised.listeners", v.text("advertised.listeners"))
	if err != nil {
		return err
	}
	var errs []error
	controllers := topicconfig.SplitList(v.text("controller.listener.names"))
	for _, a := range list {
		if slices.Contains(controllers, a.Name) {
			continue // controllers are reached as controller.quorum.voters says
		}
		c.Advertised = append(c.Advertised, a)
		if !slices.ContainsFunc(own, func(l ListenerConfig) bool { return l.Name == a.Name }) {
			errs = append(errs, fmt.Errorf("%w: advertised.listeners has %s, which is no broker listener", errConfig, a.Name))
		}
		if a.Host == "" || isWildcard(a.Host) {
			errs = append(errs, fmt.Errorf("%w: advertised.listeners: %s needs a host that others can reach", errConfig, a.Name))
		}
	}
	if len(c.Advertised) == 0 {
		errs = append(errs, fmt.Errorf("%w: advertised.listeners has no broker listener", errConfig))
	}
	return errors.Join(errs...)
}

// advertiseOwn advertises the listeners as they are; one on all interfaces by the name of the machine.
func (c *Config) advertiseOwn(own []ListenerConfig) error {
	for _, l := range own {
		if isWildcard(l.Host) {
			return fmt.Errorf("%w: listener %s on %s needs advertised.listeners", errConfig, l.Name, l.Host)
		}
		if l.Host == "" {
			host, err := os.Hostname()
			if err != nil {
				return fmt.Errorf("%w: listener %s without a host needs advertised.listeners: %w", errConfig, l.Name, err)
			}
			l.Host = host
		}
		c.Advertised = append(c.Advertised, l)
	}
	return nil
}

func isWildcard(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsUnspecified()
}

func (c *Config) readInterBroker(v valueReader) error {
	name := strings.ToUpper(v.text("inter.broker.listener.name"))
	switch {
	case name == "" && len(c.Advertised) > 0:
		name = c.Advertised[0].Name
		if slices.ContainsFunc(c.Advertised, func(l ListenerConfig) bool { return l.Name == "PLAINTEXT" }) {
			name = "PLAINTEXT" // that of security.inter.broker.protocol
		}
	case !slices.ContainsFunc(c.Advertised, func(l ListenerConfig) bool { return l.Name == name }):
		return fmt.Errorf("%w: inter.broker.listener.name=%s is no advertised listener", errConfig, name)
	}
	c.InterBroker = name
	return nil
}

// readVoters fills Voters. A node with the controller role and no voters named is the only controller.
func (c *Config) readVoters(v valueReader) error {
	c.Voters = map[ids.NodeID]string{}
	text := v.text("controller.quorum.voters")
	bootstrap := topicconfig.SplitList(v.text("controller.quorum.bootstrap.servers"))
	if text == "" {
		if !c.ControllerRole {
			return fmt.Errorf("%w: a node without the controller role needs controller.quorum.voters", errConfig)
		}
		if len(bootstrap) > 1 {
			return fmt.Errorf("%w: several controllers need controller.quorum.voters, which has their ids", errConfig)
		}
		c.Voters[c.NodeID] = ""
		return nil
	}
	voters, err := controller.ParseVoters(text)
	if err != nil {
		return fmt.Errorf("%w: %w", errConfig, err)
	}
	c.Voters = voters
	_, voter := c.Voters[c.NodeID]
	if voter != c.ControllerRole {
		return fmt.Errorf("%w: node %d must be in controller.quorum.voters if, and only if, it has the controller role", errConfig, c.NodeID)
	}
	if c.ControllerRole && len(c.Voters) > 1 && !slices.ContainsFunc(c.Listeners, func(l ListenerConfig) bool { return l.Controller }) {
		return fmt.Errorf("%w: several controllers need a listener of controller.listener.names", errConfig)
	}
	return nil
}
