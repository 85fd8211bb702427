package topicconfig

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"cairn/internal/nearest"
)

// Type is the type of a config's value, with the numbers DescribeConfigs uses.
type Type int8

// The types that occur among topic configs.
const (
	Bool   Type = 1
	String Type = 2
	Int    Type = 3
	Long   Type = 5
	Double Type = 6
	List   Type = 7
)

// MaxValueBytes is the longest value of a dynamic config.
const MaxValueBytes = math.MaxInt16

// ErrUnknown is wrapped by every error about a config name that is not in the table.
var ErrUnknown = errors.New("unknown topic config")

// ErrInvalid is wrapped by every error about a value that its config does not take.
var ErrInvalid = errors.New("invalid value")

// Synonym is a broker property that sets the default of a topic config, in a possibly coarser unit.
type Synonym struct {
	Name string
	// Factor converts the property's value to the topic config's: 60,000 for minutes to milliseconds. 1 leaves it alone.
	Factor int64
}

// Def is one topic config.
type Def struct {
	Name    string
	Type    Type
	Default string
	// Synonyms are the broker properties that set its default, the first one that is set wins.
	Synonyms []Synonym
	// NoEffect says why the config changes nothing in cairn; empty when it does what Kafka documents.
	NoEffect string
	// Hidden configs can be set but are not described.
	Hidden bool

	check func(value string) error
}

// Validate reports whether the config takes the value. The error wraps ErrInvalid.
func (d Def) Validate(value string) error {
	if len(value) > MaxValueBytes {
		return fmt.Errorf("%w: %s has %d bytes, at most %d are allowed", ErrInvalid, d.Name, len(value), MaxValueBytes)
	}
	if err := d.check(strings.TrimSpace(value)); err != nil {
		return fmt.Errorf("%w %q for configuration %s: %w", ErrInvalid, value, d.Name, err)
	}
	return nil
}

// Validate checks a topic's configs one by one and against each other, and joins all errors.
func Validate(configs Layer) error {
	var errs []error
	for _, name := range sortedNames(configs) {
		d, ok := Lookup(name)
		if !ok {
			errs = append(errs, unknown(name))
			continue
		}
		errs = append(errs, d.Validate(configs[name]))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return validateTogether(configs)
}

// unknown is the error about a name that no config has, with the name that may have been meant.
func unknown(name string) error {
	var names []string
	for _, d := range Defs() {
		if !d.Hidden {
			names = append(names, d.Name)
		}
	}
	if meant := nearest.Name(name, slices.Values(names)); meant != "" {
		return fmt.Errorf("%w %q; did you mean %q?", ErrUnknown, name, meant)
	}
	return fmt.Errorf("%w %q", ErrUnknown, name)
}

// validateTogether checks what only two values together can break.
func validateTogether(configs Layer) error {
	s := MustSettings(configs)
	if s.MinCompactionLagMs > s.MaxCompactionLagMs {
		return fmt.Errorf("%w: min.compaction.lag.ms (%d) must not be above max.compaction.lag.ms (%d)",
			ErrInvalid, s.MinCompactionLagMs, s.MaxCompactionLagMs)
	}
	return nil
}

func sortedNames(l Layer) []string {
	names := make([]string, 0, len(l))
	for n := range l {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func intIn(low, high int64) func(string) error {
	return func(v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return errors.New("not a number")
		}
		if n < low || n > high {
			return fmt.Errorf("must lie between %d and %d", low, high)
		}
		return nil
	}
}

func doubleIn(low, high float64) func(string) error {
	return func(v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return errors.New("not a number")
		}
		if !(f >= low && f <= high) { // this way round, so that NaN is refused
			return fmt.Errorf("must lie between %v and %v", low, high)
		}
		return nil
	}
}

func oneOf(values ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(values, v) {
			return fmt.Errorf("must be one of %s", strings.Join(values, ", "))
		}
		return nil
	}
}

func isBool(v string) error {
	return oneOf("true", "false")(strings.ToLower(v))
}

// onlyFalse is for switches of a feature that cairn does not have: turning it on must not look as if it had worked.
func onlyFalse(feature string) func(string) error {
	return func(v string) error {
		if err := isBool(v); err != nil {
			return err
		}
		if strings.EqualFold(v, "true") {
			return fmt.Errorf("%s is not available", feature)
		}
		return nil
	}
}

// subsetOf checks a list whose items are unique and among the values. An empty list is allowed.
func subsetOf(values ...string) func(string) error {
	return func(v string) error {
		items := SplitList(v)
		for i, it := range items {
			if slices.Contains(items[:i], it) {
				return fmt.Errorf("%s is named twice", it)
			}
			if err := oneOf(values...)(it); err != nil {
				return err
			}
		}
		return nil
	}
}

// throttledReplicas checks Kafka's list of partition:broker pairs, or "*" alone.
func throttledReplicas(v string) error {
	if v == "*" {
		return nil
	}
	for _, it := range SplitList(v) {
		p, b, ok := strings.Cut(it, ":")
		if !ok || intIn(0, math.MaxInt32)(p) != nil || intIn(0, math.MaxInt32)(b) != nil {
			return errors.New("want * or a list of partition:broker")
		}
	}
	return nil
}

// SplitList splits a list value at its commas, as Kafka does: blanks around items do not count, empty text is an empty list.
func SplitList(v string) []string {
	if strings.TrimSpace(v) == "" {
		return nil
	}
	items := strings.Split(v, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}
