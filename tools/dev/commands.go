package dev

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"cairn/tools/lab/nodes"
)

const help = `kill N     end node N at once (SIGKILL)
stop N     end node N in good order (SIGTERM)
start N    start node N again, with its data
freeze N   stop node N in its tracks (SIGSTOP)
thaw N     let it go on
nodes      print the nodes and how they are
quit       end all`

// errNoNode is for an id that the cluster does not have.
var errNoNode = errors.New("no such node")

// command does what a line asks for; done means that the session is to end.
func (s *session) command(ctx context.Context, words []string) (done bool, err error) {
	if len(words) == 0 {
		return false, nil
	}
	switch words[0] {
	case "help", "?":
		s.out.Note("%s", help)
		return false, nil
	case "quit", "exit":
		return true, nil
	case "nodes":
		s.printNodes()
		return false, nil
	}
	action := s.actions()[words[0]]
	if action == nil {
		return false, fmt.Errorf("no command %q; help lists them", words[0])
	}
	if len(words) != 2 {
		return false, fmt.Errorf("want %s N, with the id of a node; nodes lists them", words[0])
	}
	n, err := s.node(words[1])
	if err != nil {
		return false, err
	}
	return false, action(ctx, n)
}

// actions are the commands on one node.
func (s *session) actions() map[string]func(context.Context, *nodes.Node) error {
	return map[string]func(context.Context, *nodes.Node) error{
		"kill": func(_ context.Context, n *nodes.Node) error { return s.end(n, n.Kill) },
		"stop": func(_ context.Context, n *nodes.Node) error {
			return s.end(n, func() error { return n.Stop(stopTimeout) })
		},
		"freeze": func(_ context.Context, n *nodes.Node) error { return s.signal(n, "frozen", n.Freeze) },
		"thaw":   func(_ context.Context, n *nodes.Node) error { return s.signal(n, "going on", n.Thaw) },
		"start":  s.startAgain,
	}
}

func (s *session) node(text string) (*nodes.Node, error) {
	id, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("%w %q", errNoNode, text)
	}
	for _, n := range s.cluster.Nodes {
		if n.ID == id {
			return n, nil
		}
	}
	return nil, fmt.Errorf("%w %d; nodes lists them", errNoNode, id)
}

func (s *session) end(n *nodes.Node, how func() error) error {
	s.wanted[n.ID] = false
	if err := how(); err != nil {
		return err
	}
	s.out.Note("node %d has ended", n.ID)
	return nil
}

func (s *session) signal(n *nodes.Node, state string, how func() error) error {
	if !n.Running() {
		return fmt.Errorf("node %d is not running; start %d starts it", n.ID, n.ID)
	}
	if err := how(); err != nil {
		return err
	}
	s.out.Note("node %d is %s", n.ID, state)
	return nil
}

func (s *session) startAgain(ctx context.Context, n *nodes.Node) error {
	if err := s.start(n); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	took, err := n.WaitReady(ctx)
	if err != nil {
		return err
	}
	s.out.Note("node %d is ready after %d ms", n.ID, took.Milliseconds())
	return nil
}

func (s *session) printNodes() {
	for _, n := range s.cluster.Nodes {
		state, pid := "ended", "-"
		if n.Running() {
			state, pid = "running", strconv.Itoa(n.PID())
			if !n.Serving() {
				state = "frozen"
			}
		}
		s.out.Note("%s", strings.TrimRight(fmt.Sprintf("%3d  %-8s pid %-8s %s", n.ID, state, pid, n.Addr), " "))
	}
}
