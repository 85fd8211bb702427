package clientconfig

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"cairn/internal/nearest"
)

// property is one line of a table: what Kafka calls it, its default, and which values it takes.
type property struct {
	name, def string
	check     func(string) error
	inert     bool // accepted, without effect on franz-go
}

// settings are the values of a table, complete: defaults where nothing was given. given tells them apart.
type settings struct {
	table  []property
	values map[string]string
	given  map[string]string
}

// parse checks the values of a table; all errors are joined. Names that the table does not have are for warnings.
func parse(table []property, given map[string]string) (settings, error) {
	s := settings{table: table, values: map[string]string{}, given: given}
	var errs []error
	for _, p := range table {
		value, ok := given[p.name]
		if !ok {
			value = p.def
		}
		value = strings.TrimSpace(value)
		if err := p.check(value); err != nil {
			errs = append(errs, fmt.Errorf("%s=%s: %w", p.name, value, err))
		}
		s.values[p.name] = value
	}
	return s, errors.Join(errs...)
}

// warnings are about names that are unknown or have no effect, sorted.
func (s settings) warnings() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.given)) {
		i := slices.IndexFunc(s.table, func(p property) bool { return p.name == name })
		switch {
		case i < 0:
			text := fmt.Sprintf("there is no client property %s", name)
			if near := nearest.Name(name, s.names()); near != "" {
				text += "; did you mean " + near + "?"
			}
			out = append(out, text)
		case s.table[i].inert && s.values[name] != s.table[i].def:
			out = append(out, fmt.Sprintf("client property %s has no effect here", name))
		}
	}
	return out
}

func (s settings) names() func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, p := range s.table {
			if !yield(p.name) {
				return
			}
		}
	}
}

// Print writes NAME = VALUE for each property, sorted by name, as Kafka's clients log them.
func (s settings) Print(w io.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(s.values)) {
		value := s.values[name]
		if value == "" {
			value = "null"
		}
		if _, err := fmt.Fprintf(w, "%s = %s\n", name, value); err != nil {
			return err
		}
	}
	return nil
}

// Values are all properties by name, as in Print.
func (s settings) Values() map[string]string { return maps.Clone(s.values) }

// The readers below are for values that parse has checked.

func (s settings) int(name string) int {
	n, err := strconv.Atoi(s.values[name])
	if err != nil {
		panic(fmt.Sprintf("BUG: %s=%s was not checked", name, s.values[name]))
	}
	return n
}

func (s settings) ms(name string) time.Duration { return time.Duration(s.int(name)) * time.Millisecond }

func (s settings) bool(name string) bool { return strings.EqualFold(s.values[name], "true") }

func (s settings) isGiven(name string) bool {
	_, ok := s.given[name]
	return ok
}

// The checks.

func between(low, high int64) func(string) error {
	return func(v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < low || n > high {
			return fmt.Errorf("want a number from %d to %d", low, high)
		}
		return nil
	}
}

func atLeast(low int64) func(string) error { return between(low, math.MaxInt32) }

func oneOf(values ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(values, v) {
			return fmt.Errorf("want one of %s", strings.Join(values, ", "))
		}
		return nil
	}
}

func boolean(v string) error {
	if strings.EqualFold(v, "true") || strings.EqualFold(v, "false") {
		return nil
	}
	return errors.New("want true or false")
}

func anything(string) error { return nil }

func plaintext(v string) error {
	if !strings.EqualFold(v, "PLAINTEXT") {
		return errors.New("only PLAINTEXT is supported")
	}
	return nil
}
