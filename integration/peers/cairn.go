package main

import (
	"cairn/tools/lab/nodes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// cairnServers are nodes of cairn: one that is broker and controller, or three brokers with a controller.
type cairnServers struct{ cluster *nodes.Cluster }

func openCairn(_ string, count int, safe bool) (servers, error) {
	return openBuild(filepath.Join(root, "bin", "cairn"), count, safe)
}

func openBuild(binary string, count int, safe bool) (servers, error) {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(binary); err != nil {
		return nil, errors.Join(err, errors.New("`make build` makes it"))
	}
	props := map[string]string{"log.flush": "os"}
	if safe {
		props["log.flush"] = "always"
	}
	make := nodes.Single
	if count > 1 {
		make = nodes.Three
	}
	c, err := make(binary, props)
	return &cairnServers{c}, err
}

func (s *cairnServers) start() error {
	var errs []error
	for _, n := range s.cluster.Nodes {
		if !n.Running() {
			errs = append(errs, n.Start())
		}
	}
	return errors.Join(errs...)
}

func (s *cairnServers) wait(ctx context.Context) error {
	for _, n := range s.cluster.Nodes {
		if _, err := n.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *cairnServers) stop() error {
	var errs []error
	for _, n := range s.cluster.Nodes {
		if n.Running() {
			errs = append(errs, n.Stop(stopLimit))
		}
	}
	return errors.Join(errs...)
}

func (s *cairnServers) crash() error {
	var errs []error
	for _, n := range s.cluster.Nodes {
		if n.Running() {
			errs = append(errs, n.Kill())
		}
	}
	return errors.Join(errs...)
}

func (s *cairnServers) kill(node int) error { return s.cluster.Brokers()[node].Kill() }
func (s *cairnServers) dir() string         { return s.cluster.Dir }
func (s *cairnServers) close() error        { return s.cluster.Close() }
func (s *cairnServers) addresses() []string { return s.cluster.Bootstrap() }

func (s *cairnServers) logTails() string {
	var b strings.Builder
	for _, n := range s.cluster.Nodes {
		b.WriteString(n.LogTail() + "\n")
	}
	return b.String()
}

func (s *cairnServers) pids() []int {
	var list []int
	for _, n := range s.cluster.Nodes {
		if n.Running() {
			list = append(list, n.PID())
		}
	}
	return list
}
