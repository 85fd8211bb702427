package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// stepLimit bounds a step, beside its loads.
const stepLimit = 90 * time.Second

// visit is one system in one round, with the steps that are left to do.
type visit struct {
	part  string
	round int
	sys   system
	steps []step
}

// begins is about what a visit takes before and after its steps.
func (v visit) begins() time.Duration { return v.sys.startTime() + v.sys.warmTime() + time.Second }

// plan lists the visits of a part. From round to round another system begins, so that none always follows the same.
func plan(part string, o options, r *results) []visit {
	rounds := 1
	if part == partKey || o.before != "" {
		rounds = o.rounds
	}
	var list []visit
	for round := range rounds {
		for _, nodes := range o.nodes {
			all := o.systems(nodes)
			for i := range all {
				v := visit{part: part, round: round, sys: all[(i+round)%len(all)]}
				for _, st := range steps(part, o, v.sys) {
					if o.only.MatchString(st.name) && o.system.MatchString(v.sys.String()) && !r.done(v.id(st)) {
						v.steps = append(v.steps, st)
					}
				}
				if len(v.steps) > 0 {
					list = append(list, v)
				}
			}
		}
	}
	return list
}

func (v visit) id(st step) id {
	return id{Round: v.round, Nodes: v.sys.nodes, System: v.sys.String(), Step: st.name}
}

// progress tells how far a run is.
type progress struct {
	begun         time.Time
	steps, done   int
	total, behind time.Duration // estimated
}

func newProgress(o options, visits []visit) *progress {
	p := &progress{begun: time.Now()}
	for _, v := range visits {
		p.total += v.begins()
		for _, st := range v.steps {
			p.steps++
			p.total += st.estimate(o)
		}
	}
	return p
}

// left is what the rest takes: as estimated at first, and more and more as what was done took.
func (p *progress) left() time.Duration {
	rest := p.total - p.behind
	if p.behind == 0 {
		return rest
	}
	took := float64(time.Since(p.begun)) / float64(p.behind)
	weight := float64(p.behind) / float64(p.total)
	trust := min(1, 4*weight)
	return time.Duration(float64(rest) * (trust*took + 1 - trust))
}

func (p *progress) tell(format string, args ...any) {
	fmt.Printf("[%d of %d, %s, about %s left] %s\n", p.done, p.steps, minutes(time.Since(p.begun)), minutes(p.left()), fmt.Sprintf(format, args...))
}

func minutes(d time.Duration) string {
	return fmt.Sprintf("%d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// measure does what a part has left. A step that fails leaves its reason, and the others are done all the same.
func measure(ctx context.Context, o options, kept map[string]*results, visits []visit) {
	p := newProgress(o, visits)
	fmt.Printf("%d steps, about %s\n", p.steps, minutes(p.total))
	for _, v := range visits {
		if ctx.Err() != nil {
			return
		}
		p.tell("%s, %d node(s), round %d of the %s", v.sys, v.sys.nodes, v.round+1, v.part)
		if err := v.run(ctx, o, kept[v.part], p); err != nil {
			fmt.Println("FAIL", err)
		}
	}
}

// run starts a system with empty disks and takes it through the steps. Its error is that of the end, what goes wrong before is in the results.
func (v visit) run(ctx context.Context, o options, kept *results, p *progress) (err error) {
	dir, err := os.MkdirTemp(os.Getenv("CAIRN_TEST_DIR"), "peers-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	syscall.Sync() // what others have left to write is not this one's
	s, srv, beginErr := v.begin(ctx, o, dir)
	if srv != nil {
		defer func() { err = errors.Join(err, srv.close()) }()
	}
	if s != nil {
		defer s.client.close()
	}
	p.behind += v.begins()
	for _, st := range v.steps {
		if ctx.Err() != nil {
			return nil
		}
		one := result{id: v.id(st)}
		begun := time.Now()
		if beginErr != nil {
			one.Error = firstLine(beginErr)
		} else if one.Figures, err = s.step(ctx, st); err != nil && ctx.Err() == nil {
			one.Error = firstLine(err)
			fmt.Printf("FAIL %s: %v\nthe servers' logs end with\n%s\n", st.name, err, srv.logTails())
			beginErr = s.recover(ctx)
		}
		if ctx.Err() != nil {
			return nil // neither done nor failed
		}
		one.Seconds = time.Since(begun).Seconds()
		p.behind += st.estimate(o)
		p.done++
		p.tell("%s: %s", st.name, one)
		if err := kept.add(one); err != nil {
			return err
		}
	}
	return nil
}

// begin starts the servers and has them take records for a while. Even when it fails there may be servers to close.
func (v visit) begin(ctx context.Context, o options, dir string) (*session, servers, error) {
	srv, err := v.sys.open(dir, v.sys.nodes, v.sys.safe)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := errors.Join(srv.start(), srv.wait(ctx)); err != nil {
		return nil, srv, fmt.Errorf("starting: %w", err)
	}
	cl, err := v.sys.dial(srv.addresses(), v.sys)
	if err != nil {
		return nil, srv, err
	}
	s := &session{sys: v.sys, client: cl, srv: srv, o: o, written: map[int]written{}}
	if err := s.warmUp(ctx); err != nil {
		fmt.Println("FAIL warming up:", err) // what is measured next shows whether that was all
	}
	return s, srv, nil
}

func (s *session) step(ctx context.Context, st step) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit+st.estimate(s.o))
	defer cancel()
	s.figures = figures{}
	err := st.do(ctx, s)
	return s.figures, err
}

// recover makes sure that servers run after a step failed: what it was may have brought one down, or left it at work.
func (s *session) recover(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := errors.Join(s.srv.crash(), s.srv.start(), s.srv.wait(ctx)); err != nil {
		return fmt.Errorf("the servers did not come back after the step before: %w", err)
	}
	return nil
}

func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// String is for whoever watches.
func (r result) String() string {
	if r.Error != "" {
		return "FAILED: " + r.Error
	}
	var words []string
	for _, cell := range sortedKeys(r.Figures) {
		for _, metric := range sortedKeys(r.Figures[cell]) {
			words = append(words, fmt.Sprintf("%s %s", digits(r.Figures[cell][metric]), metric))
		}
	}
	return strings.Join(words, ", ")
}
