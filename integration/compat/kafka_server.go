package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"cairn/integration/workload"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkaServer is Kafka itself, of the jars that its tools come from: one node that is its own controller.
type kafkaServer struct {
	dir, classes, addr string
	cmd                *exec.Cmd // nil while it does not run
	out                *os.File
}

// newKafkaServer formats a directory.
func newKafkaServer(ctx context.Context, dir, classes string) (*kafkaServer, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	k := &kafkaServer{dir: dir, classes: classes, addr: ports[0]}
	config := strings.Join([]string{
		"process.roles=broker,controller", "node.id=1", "controller.quorum.voters=1@" + ports[1],
		"listeners=PLAINTEXT://" + ports[0] + ",CONTROLLER://" + ports[1], "controller.listener.names=CONTROLLER",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT", "log.dirs=" + k.logDir(),
		"offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
		"offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1", "log.segment.bytes=1048576",
	}, "\n")
	if err := os.WriteFile(k.config(), []byte(config), 0o600); err != nil {
		return nil, err
	}
	out, err := k.java(ctx, "kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", k.config()).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("formatting Kafka's directory: %w: %s", err, tail(out))
	}
	return k, nil
}

// freePorts are addresses that nobody listened on a moment ago.
func freePorts(n int) ([]string, error) {
	var addrs []string
	var held []net.Listener
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		held, addrs = append(held, l), append(addrs, l.Addr().String())
	}
	var err error
	for _, l := range held {
		err = errors.Join(err, l.Close())
	}
	return addrs, err
}

func (k *kafkaServer) config() string { return filepath.Join(k.dir, "server.properties") }
func (k *kafkaServer) logDir() string { return filepath.Join(k.dir, "kafka-logs") }

func (k *kafkaServer) java(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "java", append([]string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", k.classes}, args...)...)
}

// start returns once the server answers.
func (k *kafkaServer) start(ctx context.Context) error {
	out, err := os.OpenFile(filepath.Join(k.dir, "out.txt"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	k.cmd, k.out = k.java(ctx, "kafka.Kafka", k.config()), out
	k.cmd.Stdout, k.cmd.Stderr = out, out
	if err := k.cmd.Start(); err != nil {
		k.cmd = nil
		return errors.Join(err, out.Close())
	}
	cl, err := kgo.NewClient(workload.ClientOptions([]string{k.addr})...)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := kadm.NewClient(cl).ListTopics(ctx)
		if err == nil {
			return nil
		}
		if workload.Pause(ctx, 100*time.Millisecond) != nil {
			text, _ := os.ReadFile(filepath.Join(k.dir, "out.txt"))
			return fmt.Errorf("no answer from Kafka: %w: %s", err, tail(text))
		}
	}
}

// kill ends the process as a crash would.
func (k *kafkaServer) kill() error {
	if k.cmd == nil {
		return nil
	}
	err := k.cmd.Process.Kill()
	_ = k.cmd.Wait() // it says that the process was killed
	k.cmd = nil
	return errors.Join(err, k.out.Close())
}

// topic makes a topic of one partition and waits until its files are there.
func (k *kafkaServer) topic(ctx context.Context, name string) error {
	if err := workload.CreateTopic(ctx, []string{k.addr}, name, 1, 1, nil); err != nil {
		return err
	}
	for {
		if _, err := os.Stat(filepath.Join(k.partition(name), "partition.metadata")); err == nil {
			return nil
		}
		if err := workload.Pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("no files of topic %s: %w", name, err)
		}
	}
}

// partition is the directory of a topic's only partition.
func (k *kafkaServer) partition(topic string) string {
	return filepath.Join(k.logDir(), topic+"-"+strconv.Itoa(0))
}
