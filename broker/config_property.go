package broker

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cairn/broker/topicconfig"
	"cairn/internal/nearest"
)

// propertyType is the type of a broker property's value, with the numbers DescribeConfigs uses.
type propertyType int8

const (
	typeBool     propertyType = 1
	typeString   propertyType = 2
	typeInt      propertyType = 3
	typeShort    propertyType = 4
	typeLong     propertyType = 5
	typeDouble   propertyType = 6
	typeList     propertyType = 7
	typeClass    propertyType = 8
	typePassword propertyType = 9
)

// propertyMode says whether a property can be changed at run time in Kafka, and for whom.
type propertyMode uint8

const (
	readOnly propertyMode = iota
	clusterWide
	perBroker
)

// propertyEffect says what becomes of a property here.
type propertyEffect uint8

const (
	used         propertyEffect = iota
	topicDefault                // sets the default of a topic config; topicconfig checks it and knows whether it has an effect
	noEffect                    // accepted, named once at WARN
	refused                     // only the default is accepted: doing nothing would contradict what the operator asked for
)

// property is one broker property.
type property struct {
	Name    string
	Type    propertyType
	Default string // "" for none as well
	// Limits are "low..", "low..high" (both inclusive) or the allowed words joined by '|'.
	Limits string
	Mode   propertyMode
	Effect propertyEffect
	Doc    string
}

// errConfig is wrapped by every error about the configuration.
var errConfig = errors.New("bad configuration")

// lookupProperty finds a property by its exact name.
func lookupProperty(name string) (property, bool) {
	i, ok := slices.BinarySearchFunc(propertyTable, name, func(p property, n string) int { return strings.Compare(p.Name, n) })
	if !ok {
		return property{}, false
	}
	return propertyTable[i], true
}

// pluginPrefixes begin names that Kafka passes on to plug-ins or to one listener. There are none here to pass them to.
var pluginPrefixes = []string{"listener.name.", "rlmm.config.", "rsm.config."}

func isPluginProperty(name string) bool {
	return slices.ContainsFunc(pluginPrefixes, func(p string) bool { return strings.HasPrefix(name, p) && len(name) > len(p) })
}

// effect is the effect of the property, with that of the topic config whose default it sets.
func (p property) effect() (propertyEffect, string) {
	if p.Effect != topicDefault {
		return p.Effect, p.Doc
	}
	if d, _, ok := topicconfig.LookupServer(p.Name); ok {
		if d.NoEffect != "" {
			return noEffect, "No effect: " + d.NoEffect + "."
		}
		return used, "Default of the topic config " + d.Name + "."
	}
	return noEffect, p.Doc
}

// check reports whether the property takes the value.
func (p property) check(value string) error {
	value = strings.TrimSpace(value)
	if p.Effect == topicDefault {
		if err := topicconfig.ValidateServer(p.Name, value); err != nil {
			return fmt.Errorf("%w: %w", errConfig, err)
		}
		return nil
	}
	if p.Effect == refused && !strings.EqualFold(value, p.Default) {
		return fmt.Errorf("%w: %s=%s: %s", errConfig, p.Name, value, p.Doc)
	}
	if err := p.checkValue(value); err != nil {
		return fmt.Errorf("%w: %s=%s: %w", errConfig, p.Name, value, err)
	}
	return nil
}

func (p property) checkValue(value string) error {
	switch p.Type {
	case typeBool:
		if !strings.EqualFold(value, "true") && !strings.EqualFold(value, "false") {
			return errors.New("want true or false")
		}
	case typeShort, typeInt, typeLong:
		n, err := strconv.ParseInt(value, 10, map[propertyType]int{typeShort: 16, typeInt: 32, typeLong: 64}[p.Type])
		if err != nil {
			return fmt.Errorf("want a whole number of at most %d bits", map[propertyType]int{typeShort: 16, typeInt: 32, typeLong: 64}[p.Type])
		}
		return inLimits(p.Limits, float64(n))
	case typeDouble:
		f, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return errors.New("want a number")
		}
		return inLimits(p.Limits, f)
	case typeList:
		return inWords(p.Limits, topicconfig.SplitList(value)...)
	case typeString, typeClass, typePassword:
		return inWords(p.Limits, value)
	}
	return nil
}

// inLimits checks a number against "low..high".
func inLimits(limits string, n float64) error {
	low, high, ok := strings.Cut(limits, "..")
	if !ok {
		return nil
	}
	if l, err := strconv.ParseFloat(low, 64); err == nil && n < l {
		return fmt.Errorf("must be at least %s", low)
	}
	if h, err := strconv.ParseFloat(high, 64); err == nil && n > h {
		return fmt.Errorf("must be at most %s", high)
	}
	return nil
}

// inWords checks words against "a|b|c".
func inWords(limits string, values ...string) error {
	if limits == "" {
		return nil
	}
	words := strings.Split(limits, "|")
	for _, v := range values {
		if !slices.Contains(words, v) {
			return fmt.Errorf("want one of %s", strings.Join(words, ", "))
		}
	}
	return nil
}

// errUnknownProperty builds the error for a name that is not in the table, with the nearest one that is.
func errUnknownProperty(name string) error {
	near := nearest.Name(name, func(yield func(string) bool) {
		for _, p := range propertyTable {
			if !yield(p.Name) {
				return
			}
		}
	})
	if near == "" {
		return fmt.Errorf("%w: unknown property %q", errConfig, name)
	}
	return fmt.Errorf("%w: unknown property %q; did you mean %q?", errConfig, name, near)
}
