package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	"cairn/tools"
)

// Step is one thing that is done or looked at.
type Step struct {
	Do     string // what is done
	Expect string // what must be seen; empty: it only has to succeed
	// Run does it and tells what was measured. An error that wraps errDiffers means that something else was seen; any other, that the step
	// could not be carried out. Both end the run.
	Run func(ctx context.Context, w *world) (measured string, err error)
}

// Experiment is one row of a table of experiments.
type Experiment struct {
	Name  string
	Table string // which table it is a row of
	Shows string // one line
	After string // the experiment whose steps come first; empty: none
	// settings changes what the cluster is started with; nil: nothing. It is asked of the experiment that is run, not of those before it.
	settings func(*Settings)
	steps    func(Settings) []Step
	relayed  int // id of a broker that stands behind a relay; 0: none
}

// Settings are the times that decide when a silent broker is given up. Brokers and controller have the same.
type Settings struct {
	Lag       time.Duration // replica.lag.time.max.ms
	Session   time.Duration // broker.session.timeout.ms
	Heartbeat time.Duration // broker.heartbeat.interval.ms
	// Slack is how much longer than the session all may take that follows from a broker's silence. It sets nothing.
	Slack time.Duration
}

// Defaults are Kafka's.
func Defaults() Settings {
	return Settings{Lag: 30 * time.Second, Session: 9 * time.Second, Heartbeat: 2 * time.Second, Slack: 3 * time.Second}
}

// Fast is for those who cannot wait. What is promised of the time is so at the defaults: here the machine may be busy with much else.
func Fast() Settings {
	return Settings{Lag: 4 * time.Second, Session: 3 * time.Second, Heartbeat: 500 * time.Millisecond, Slack: 12 * time.Second}
}

// properties are the settings as broker properties.
func (s Settings) properties() map[string]string {
	ms := func(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
	return map[string]string{
		"replica.lag.time.max.ms": ms(s.Lag), "broker.session.timeout.ms": ms(s.Session), "broker.heartbeat.interval.ms": ms(s.Heartbeat),
	}
}

// fenced bounds how long after its last sign of life a broker is fenced, with all that follows from it.
func (s Settings) fenced() time.Duration { return s.Session + s.Slack }

// The tables.
const (
	tableISR   = "Acks and the in-sync replica set"
	tableWrite = "The write path under a slow follower"
)

// Experiments are all rows, in the order of their tables.
func Experiments() []Experiment {
	return slices.Concat(isrExperiments(), acksLeaderExperiments(), writeExperiments())
}

// Find returns the experiment with the name.
func Find(name string) (Experiment, error) {
	for _, e := range Experiments() {
		if e.Name == name {
			return e, nil
		}
	}
	return Experiment{}, fmt.Errorf("no experiment %q; `cairn lab list` lists them", name)
}

// chain lists the experiment and those it goes on from, the first to run first.
func (e Experiment) chain() ([]Experiment, error) {
	list := []Experiment{e}
	for e.After != "" {
		before, err := Find(e.After)
		if err != nil || len(list) > len(Experiments()) {
			return nil, fmt.Errorf("BUG: %s goes on from %s: %w", e.Name, e.After, err)
		}
		list, e = append(list, before), before
	}
	slices.Reverse(list)
	return list, nil
}

// listed is the JSON form of an experiment.
type listed struct {
	Name  string `json:"name"`
	Table string `json:"table"`
	Shows string `json:"shows"`
	After string `json:"after,omitempty"`
	Steps int    `json:"steps"` // those of its own
}

// List prints the experiments.
func List(out tools.Output) error {
	all := []listed{}
	for _, e := range Experiments() {
		all = append(all, listed{e.Name, e.Table, e.Shows, e.After, len(e.steps(Defaults()))})
	}
	if out.JSON {
		return out.WriteJSON(all)
	}
	table := ""
	for _, e := range all {
		if e.Table != table {
			table = e.Table
			if _, err := fmt.Fprintf(out.Out, "%s\n", table); err != nil {
				return err
			}
		}
		goesOn := ""
		if e.After != "" {
			goesOn = " (goes on from " + e.After + ")"
		}
		if _, err := fmt.Fprintf(out.Out, "  %-20s %s%s\n", e.Name, e.Shows, goesOn); err != nil {
			return err
		}
	}
	return nil
}
