package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// natsCommand is the argument by which this program becomes a NATS server.
const natsCommand = "nats-server"

// runNATS is a NATS server until it is told to end.
func runNATS(config string) error {
	opts, err := server.ProcessConfigFile(config)
	if err != nil {
		return err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	if err := server.Run(s); err != nil { // handles signals
		return err
	}
	s.WaitForShutdown()
	return nil
}

// natsServers are one server, or three in a cluster.
type natsServers struct{ fleet }

func openNATS(dir string, count int, safe bool) (servers, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2 * count)
	if err != nil {
		return nil, err
	}
	var routes []string
	for i := range count {
		routes = append(routes, "nats://"+local(ports[count+i]))
	}
	s := &natsServers{fleet{home: dir}}
	for i := range count {
		home := filepath.Join(dir, fmt.Sprint("nats-", i))
		if err := os.Mkdir(home, 0o700); err != nil {
			return nil, err
		}
		sync := ""
		if safe {
			sync = "sync_interval: always"
		}
		config := fmt.Sprintf("server_name: n%d\nlisten: %q\njetstream { store_dir: %q, %s }\n", i, local(ports[i]), filepath.Join(home, "data"), sync)
		if count > 1 {
			config += fmt.Sprintf("cluster { name: peers, listen: %q, routes: [%s] }\n", local(ports[count+i]), strings.Join(routes, ", "))
		}
		file := filepath.Join(home, "server.conf")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			return nil, err
		}
		s.nodes = append(s.nodes, &process{words: []string{self, natsCommand, file}, log: filepath.Join(home, "log.txt")})
		s.at = append(s.at, "nats://"+local(ports[i]))
	}
	return s, nil
}

// wait returns when each server has JetStream, and with it a leader of the cluster.
func (s *natsServers) wait(ctx context.Context) error {
	for _, at := range s.at {
		err := until(ctx, func() error {
			nc, err := nats.Connect(at, nats.Timeout(time.Second))
			if err != nil {
				return err
			}
			defer nc.Close()
			js, err := jetstream.New(nc)
			if err != nil {
				return err
			}
			asking, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			_, err = js.AccountInfo(asking)
			return err
		})
		if err != nil {
			return fmt.Errorf("NATS at %s (the logs are below %s): %w", at, filepath.Dir(s.nodes[0].log), err)
		}
	}
	return nil
}
