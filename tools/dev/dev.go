package dev

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"cairn/tools"
	"cairn/tools/lab/nodes"
)

// Options are the options of `cairn dev`.
type Options struct {
	Binary      string // the cairn to start
	Nodes       int    // brokers, with ids from 1 on
	Controllers int    // nodes of their own, with ids from nodes.ControllerID on
	Port        int    // of broker 1, those of the others follow; 0: free ones
	Properties  []string
	Keep        bool // leave data and logs in place
	In          io.Reader
}

// Bounds of a cluster on one machine.
const (
	nodesMax       = 32
	controllersMax = 9
)

const (
	readyTimeout = 30 * time.Second
	stopTimeout  = 15 * time.Second
)

// Validate joins all that is wrong with the options.
func (o Options) Validate() error {
	var errs []error
	if o.Nodes < 1 || o.Nodes > nodesMax {
		errs = append(errs, fmt.Errorf("--nodes %d: want 1 to %d", o.Nodes, nodesMax))
	}
	if o.Controllers < 1 || o.Controllers > controllersMax || o.Controllers%2 == 0 {
		errs = append(errs, fmt.Errorf("--controllers %d: want an odd number from 1 to %d", o.Controllers, controllersMax))
	}
	if o.Port < 0 || o.Port+o.Nodes > 1<<16 {
		errs = append(errs, fmt.Errorf("--port %d: want 0 for free ports, or one with %d ports from there on", o.Port, o.Nodes))
	}
	return errors.Join(errs...)
}

// session is one run.
type session struct {
	opts    Options
	out     tools.Output
	cluster *nodes.Cluster
	ended   chan int     // ids of nodes whose process ended
	wanted  map[int]bool // by id: the node is to run, so its end is news
}

// Run starts the cluster and keeps it until ctx ends, or the input says quit.
func Run(ctx context.Context, o Options, out tools.Output) (err error) {
	if err := o.Validate(); err != nil {
		return tools.UsageError{Err: err}
	}
	runtime.LockOSThread() // nodes end with the thread that starts them; this one ends with the process
	defer runtime.UnlockOSThread()
	props, err := o.props()
	if err != nil {
		return tools.UsageError{Err: err}
	}
	cluster, err := nodes.New(o.Binary, nodes.Shape{
		Brokers: o.Nodes, Controllers: o.Controllers, Props: props, ControllerProps: props, FirstPort: o.Port,
	})
	if cluster == nil {
		return err
	}
	if o.Keep {
		cluster.Keep()
	}
	s := &session{opts: o, out: out, cluster: cluster, ended: make(chan int, 64), wanted: map[int]bool{}}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err != nil {
		return err
	}
	for _, n := range cluster.Nodes {
		n.Group = true
	}
	if err := s.startAll(ctx); err != nil {
		return err
	}
	return s.obey(ctx)
}

// props are the properties for all nodes: replicas on up to three brokers, since that is what one wants to see.
func (o Options) props() (map[string]string, error) {
	props := map[string]string{"default.replication.factor": fmt.Sprint(min(3, o.Nodes))}
	for _, pair := range o.Properties {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--override %q: want NAME=VALUE", pair)
		}
		props[name] = value
	}
	return props, nil
}

func (s *session) startAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, n := range s.cluster.Nodes {
		if err := s.start(n); err != nil {
			return err
		}
	}
	for _, n := range s.cluster.Nodes {
		took, err := n.WaitReady(ctx)
		if err != nil {
			s.cluster.Keep() // its log is named in the error
			return err
		}
		kind, addr := "broker    ", n.Addr
		if addr == "" {
			kind, addr = "controller", "-"
		}
		s.out.Note("%s %3d ready after %4d ms  %-21s metrics %s  log %s", kind, n.ID, took.Milliseconds(), addr, n.Metrics, n.LogFile())
	}
	bootstrap := strings.Join(s.cluster.Bootstrap(), ",")
	if s.out.JSON {
		return s.out.WriteJSON(map[string]any{"bootstrapServers": bootstrap, "directory": s.cluster.Dir})
	}
	_, err := fmt.Fprintln(s.out.Out, bootstrap)
	s.out.Note("The line above is for --bootstrap-server. Type help for what can be done to the nodes; Ctrl-C ends them all.")
	return err
}

// start begins a life of the node and has its end told.
func (s *session) start(n *nodes.Node) error {
	if err := n.Start(); err != nil {
		return err
	}
	s.wanted[n.ID] = true
	go func(id int, ended <-chan struct{}) { // ends with the process, which stop waits for
		<-ended
		select {
		case s.ended <- id:
		default: // so many ends at once are no news one by one
		}
	}(n.ID, n.Ended())
	return nil
}

// obey serves the prompt until ctx ends, the input says quit, or an input that is no terminal and not empty ends.
func (s *session) obey(ctx context.Context) error {
	lines := readLines(ctx, s.opts.In)
	for {
		select {
		case <-ctx.Done():
			return nil
		case id := <-s.ended:
			if s.wanted[id] && !s.cluster.Node(id).Running() {
				s.wanted[id] = false
				s.out.Warn("node %d ended by itself; its log is %s", id, s.cluster.Node(id).LogFile())
			}
		case line, ok := <-lines:
			if !ok {
				lines = nil // no more commands; the cluster stays until ctx ends
				continue
			}
			done, err := s.command(ctx, strings.Fields(line))
			if err != nil {
				s.out.Warn("%v", err)
			}
			if done {
				return nil
			}
		}
	}
}

// readLines has lines of in one by one; closed at its end. The goroutine ends with the input, or the process.
func readLines(ctx context.Context, in io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(in); scanner.Scan(); {
			select {
			case lines <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}

// stop ends brokers before controllers, so that they can hand over, and removes the directory.
func (s *session) stop() error {
	var errs []error
	for _, n := range s.cluster.Nodes {
		s.wanted[n.ID] = false
		if !n.Running() {
			continue
		}
		if !n.Serving() {
			errs = append(errs, n.Thaw())
		}
		if err := n.Stop(stopTimeout); err != nil {
			s.out.Warn("%v", err)
		}
	}
	errs = append(errs, s.cluster.Close())
	if s.opts.Keep {
		s.out.Note("data and logs are kept in %s", s.cluster.Dir)
	}
	return errors.Join(errs...)
}
