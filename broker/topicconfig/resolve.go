package topicconfig

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Layer is the configured values of one source by name: topic config names for a topic's own, broker property names for
// the others. Values are raw text. A Layer given to this package is borrowed and not changed.
type Layer map[string]string

// Source says where a value comes from, with the numbers DescribeConfigs uses.
type Source int8

// The sources of a topic config, the strongest first.
const (
	TopicSource   Source = 1 // dynamic config of the topic
	BrokerSource  Source = 2 // dynamic config of this broker
	ClusterSource Source = 3 // dynamic default of all brokers
	StaticSource  Source = 4 // the broker's properties file
	DefaultSource Source = 5 // Kafka's default
)

// Layers are all the sources of a topic's configs on one broker; nil layers are empty.
type Layers struct {
	Topic, Broker, Cluster, Static Layer
}

// Value is a configured value with its name there (a topic config or a broker property) and its source.
type Value struct {
	Name, Value string
	Source      Source
}

// Entry is the effective value of one config.
type Entry struct {
	Def    Def
	Value  string // converted to the topic config's unit
	Source Source
	// Synonyms lists all values that are set, the strongest first, Kafka's default last.
	Synonyms []Value
}

// Resolve returns the effective value of every config that is not hidden, ordered by name. A property that does not
// convert to the config's unit (it would have been refused on the way in) is passed over.
func Resolve(l Layers) []Entry {
	entries := make([]Entry, 0, len(table))
	for _, d := range table {
		if d.Hidden {
			continue
		}
		entries = append(entries, resolve(d, l))
	}
	return entries
}

// ResolveOne is Resolve for one config.
func ResolveOne(name string, l Layers) (Entry, bool) {
	d, ok := Lookup(name)
	if !ok {
		return Entry{}, false
	}
	return resolve(d, l), true
}

func resolve(d Def, l Layers) Entry {
	e := Entry{Def: d, Value: d.Default, Source: DefaultSource}
	set := func(raw, converted, name string, src Source) {
		if e.Synonyms == nil {
			e.Value, e.Source = converted, src
		}
		e.Synonyms = append(e.Synonyms, Value{name, raw, src})
	}
	if v, ok := l.Topic[d.Name]; ok {
		set(v, v, d.Name, TopicSource)
	}
	for i, layer := range []Layer{l.Broker, l.Cluster, l.Static} {
		for _, s := range d.Synonyms {
			raw, ok := layer[s.Name]
			if !ok {
				continue
			}
			if v, err := s.convert(raw); err == nil {
				set(raw, v, s.Name, BrokerSource+Source(i))
			}
		}
	}
	name := d.Name
	if len(d.Synonyms) > 0 {
		name = d.Synonyms[0].Name
	}
	e.Synonyms = append(e.Synonyms, Value{name, d.Default, DefaultSource})
	return e
}

// convert turns the property's value into the topic config's unit. Negative values mean "no limit" in every unit.
func (s Synonym) convert(raw string) (string, error) {
	raw = strings.TrimSpace(raw)
	if s.Factor == 1 {
		return raw, nil
	}
	n, err := strconv.ParseInt(raw, 10, 64)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w %q for configuration %s: not a number", ErrInvalid, raw, s.Name)
	case n < 0:
		return "-1", nil
	case n > math.MaxInt64/s.Factor:
		return "", fmt.Errorf("%w %q for configuration %s: too large", ErrInvalid, raw, s.Name)
	}
	return strconv.FormatInt(n*s.Factor, 10), nil
}

// ValidateServer checks the value of a broker property that sets a topic config's default. The error wraps ErrUnknown for
// any other property, ErrInvalid for a bad value.
func ValidateServer(property, value string) error {
	d, s, ok := LookupServer(property)
	if !ok {
		return fmt.Errorf("%w: no topic config has the broker property %q", ErrUnknown, property)
	}
	v, err := s.convert(value)
	if err != nil {
		return err
	}
	if err := d.Validate(v); err != nil {
		return fmt.Errorf("%s: %w", property, err)
	}
	return nil
}
