package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"cairn/tools"
	"cairn/tools/lab/nodes"
)

// Options of a run.
type Options struct {
	Binary string // the cairn binary that the cluster consists of
	Fast   bool   // lower the lag and session times
	Keep   bool   // keep the directory after a success too
}

// runLimit bounds a run; none takes a tenth of it when all goes well.
const runLimit = 20 * time.Minute

// startLimit bounds the start of the cluster, or of one broker.
const startLimit = 60 * time.Second

// errDiffers marks a measurement that is not what was expected.
var errDiffers = errors.New("not what was expected")

// ErrFailed is returned when the verdict of an experiment is that it failed.
var ErrFailed = errors.New("experiment failed")

// differs is an error that says what was seen instead.
func differs(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errDiffers, fmt.Sprintf(format, args...))
}

// StepResult is how one step ended.
type StepResult struct {
	Experiment string  `json:"experiment"` // the one that the step belongs to
	Do         string  `json:"do"`
	Expect     string  `json:"expect,omitempty"`
	Measured   string  `json:"measured,omitempty"`
	Passed     bool    `json:"passed"`
	Problem    string  `json:"problem,omitempty"`
	Seconds    float64 `json:"seconds"`
}

// Verdict is how a run ended.
type Verdict struct {
	Experiment string            `json:"experiment"`
	Passed     bool              `json:"passed"`
	Seconds    float64           `json:"seconds"`
	Settings   map[string]string `json:"settings"`
	Steps      []StepResult      `json:"steps"`             // those that were run
	NotReached int               `json:"notReached"`        // steps behind the one that failed
	Dir        string            `json:"dir,omitempty"`     // data and logs, where they are kept
	Problem    string            `json:"problem,omitempty"` // of starting or ending the cluster
}

// Run runs an experiment and prints how it goes. The error wraps ErrFailed when the verdict is a failure.
func Run(ctx context.Context, name string, o Options, out tools.Output) (v Verdict, err error) {
	e, err := Find(name)
	if err != nil {
		return v, err
	}
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	n := newNarrator(out)
	v, err = e.run(ctx, o, n)
	n.verdict(v)
	if out.JSON {
		err = errors.Join(err, out.WriteJSON(v))
	}
	if err == nil && !v.Passed {
		err = fmt.Errorf("%w: %s", ErrFailed, name)
	}
	return v, err
}

// run starts the cluster, takes the steps and ends the cluster.
func (e Experiment) run(ctx context.Context, o Options, n *narrator) (v Verdict, err error) {
	set := Defaults()
	if o.Fast {
		set = Fast()
	}
	if e.settings != nil {
		e.settings(&set)
	}
	chain, err := e.chain()
	if err != nil {
		return v, err
	}
	begun := time.Now()
	v = Verdict{Experiment: e.Name, Settings: set.properties(), Steps: []StepResult{}}
	c, err := nodes.Three(o.Binary, nil)
	if err != nil {
		return v, fmt.Errorf("setting up the cluster: %w", err)
	}
	for _, node := range c.Nodes {
		maps.Copy(node.Props, v.Settings)
	}
	w := &world{cluster: c, binary: o.Binary, set: set, narrator: n}
	n.begin(e, set, c.Dir)
	if e.relayed != 0 {
		if w.relay, err = newRelay(c.Node(e.relayed)); err != nil {
			return v, errors.Join(fmt.Errorf("setting up the relay: %w", err), c.Close())
		}
	}
	if err := w.startAll(ctx); err != nil {
		v.Problem = "the cluster did not start: " + err.Error()
	} else {
		w.takeSteps(ctx, chain, &v)
	}
	v.Passed = v.Problem == "" && v.NotReached == 0 && (len(v.Steps) == 0 || v.Steps[len(v.Steps)-1].Passed)
	if o.Keep || !v.Passed {
		c.Keep()
		v.Dir = c.Dir
	}
	if err := errors.Join(c.Close(), w.close()); err != nil {
		v.Passed, v.Problem = false, strings.Join([]string{v.Problem, "ending the cluster: " + err.Error()}, "; ")
	}
	v.Seconds = time.Since(begun).Seconds()
	return v, nil
}

// takeSteps runs the steps of the chain until one fails.
func (w *world) takeSteps(ctx context.Context, chain []Experiment, v *Verdict) {
	failed := false
	for _, e := range chain {
		for _, s := range e.steps(w.set) {
			if failed {
				v.NotReached++
				continue
			}
			v.Steps = append(v.Steps, w.take(ctx, e.Name, s, len(v.Steps)+1))
			failed = !v.Steps[len(v.Steps)-1].Passed
		}
	}
}

// take runs one step.
func (w *world) take(ctx context.Context, experiment string, s Step, number int) StepResult {
	w.narrator.step(number, s)
	begun := time.Now()
	measured, err := s.Run(ctx, w)
	res := StepResult{
		Experiment: experiment, Do: s.Do, Expect: s.Expect, Measured: measured, Passed: err == nil, Seconds: time.Since(begun).Seconds(),
	}
	if err != nil {
		res.Problem = err.Error()
	}
	w.narrator.result(res)
	return res
}
