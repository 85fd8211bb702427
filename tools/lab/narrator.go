package lab

import (
	"fmt"
	"io"
	"strings"
	"time"

	"cairn/tools"
	"cairn/tools/lab/nodes"
)

// narrator tells a person how a run goes: steps and results as lines, and while it waits a status, which on a terminal is one line that
// is written over, and elsewhere a line now and then.
type narrator struct {
	out      io.Writer
	terminal bool
	status   bool      // a status stands on the current line
	last     time.Time // when a status was last written
}

// statusEvery is the time between two status lines where they cannot be written over.
const statusEvery = 10 * time.Second

// newNarrator tells its story on standard error when the result on standard output is for programs.
func newNarrator(out tools.Output) *narrator {
	n := &narrator{out: out.Out}
	if out.JSON {
		n.out = out.Err
	}
	n.terminal = tools.IsTerminal(n.out)
	return n
}

// say prints a line. What cannot be printed is lost: there is no other place to say it, and the verdict is what counts.
func (n *narrator) say(format string, args ...any) {
	n.clear()
	_, _ = fmt.Fprintf(n.out, format+"\n", args...)
}

// clear takes a status off the line.
func (n *narrator) clear() {
	if n.status {
		_, _ = io.WriteString(n.out, "\r\x1b[K")
		n.status = false
	}
}

// waiting shows what is waited for, since when and for how long at most.
func (n *narrator) waiting(what, seen string, since time.Time, limit time.Duration) {
	text := fmt.Sprintf("    ... %s, now %s (%.0f s of at most %.0f s)", what, orNothing(seen), time.Since(since).Seconds(), limit.Seconds())
	if n.terminal {
		n.clear()
		_, _ = io.WriteString(n.out, text)
		n.status = true
		return
	}
	if time.Since(since) > statusEvery && time.Since(n.last) > statusEvery {
		n.last = time.Now()
		n.say("%s", text)
	}
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

func (n *narrator) begin(e Experiment, set Settings, dir string) {
	n.say("%s: %s", e.Name, e.Shows)
	n.say("controller %d, brokers 1, 2, 3 in %s; lag time %v, session timeout %v, heartbeat every %v", nodes.ControllerID, dir, set.Lag, set.Session, set.Heartbeat)
}

func (n *narrator) step(number int, s Step) {
	n.say("%2d. %s", number, s.Do)
	if s.Expect != "" {
		n.say("    expected: %s", s.Expect)
	}
}

func (n *narrator) result(r StepResult) {
	word := "ok"
	if !r.Passed {
		word = "FAILED"
	}
	if r.Measured != "" {
		n.say("    measured: %s", r.Measured)
	}
	if r.Problem != "" {
		n.say("    problem:  %s", strings.ReplaceAll(r.Problem, "\n", "\n      "))
	}
	n.say("    %s (%.1f s)", word, r.Seconds)
}

func (n *narrator) verdict(v Verdict) {
	if v.Passed {
		n.say("PASSED %s: %d steps in %.1f s", v.Experiment, len(v.Steps), v.Seconds)
	} else {
		n.say("FAILED %s after %.1f s", v.Experiment, v.Seconds)
		if v.Problem != "" {
			n.say("  %s", v.Problem)
		}
		if len(v.Steps) > 0 && !v.Steps[len(v.Steps)-1].Passed {
			last := v.Steps[len(v.Steps)-1]
			n.say("  step %d, %s", len(v.Steps), last.Do)
			n.say("  expected: %s", orNothing(last.Expect))
			n.say("  measured: %s", orNothing(last.Measured))
			n.say("  problem:  %s", last.Problem)
			n.say("  %d steps behind it were not reached", v.NotReached)
		}
	}
	if v.Dir != "" {
		n.say("  data and logs are kept in %s (each node has log.txt and data)", v.Dir)
	}
}
