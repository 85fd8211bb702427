package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"cairn/integration/harness"
	"cairn/integration/workload"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// clientsShape heads the matrix of clients and scenarios.
const clientsShape = "clients"

// installTimeout bounds the installation of one client.
const installTimeout = 10 * time.Minute

// stockClient is a client of Kafka that plays the common scenarios.
type stockClient struct {
	name    string
	short   bool // it is part of the short run
	drops   bool // told to stop, it commits one record more than it printed
	tools   []string
	install func(ctx context.Context, dir string) ([]string, error) // gives the command of its driver; dir is clients/
}

func stockClients() []stockClient {
	return []stockClient{
		{name: "Java 4.3.1", short: true, tools: []string{"java", "javac", "mvn"}, install: javaClient("4.3.1")},
		{name: "Java 3.9.1", tools: []string{"java", "javac", "mvn"}, install: javaClient("3.9.1")},
		{name: "confluent-kafka 2.16.1", short: true, tools: []string{"python3"}, install: pythonClient("confluent.py")},
		{name: "kcat", drops: true, tools: []string{"kcat", "python3"}, install: kcatClient},
		{name: "kafka-python 3.0.12", short: true, tools: []string{"python3"}, install: pythonClient("kafkapython.py")},
		{name: "aiokafka 0.14.0", tools: []string{"python3"}, install: pythonClient("aio.py")},
		{name: "kafkajs 2.2.4", tools: []string{"node", "npm"}, install: nodeClient},
		{name: "franz-go 1.22.3", tools: []string{"go"}, install: goClient("franz")},
		{name: "sarama 1.61.1", tools: []string{"go"}, install: goClient("sarama")},
		{name: "kafka-go 0.4.51", tools: []string{"go"}, install: goClient("segment")},
	}
}

// command runs a step of an installation.
func command(ctx context.Context, dir string, words ...string) error {
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(words, " "), err, tail(out))
	}
	return nil
}

func javaClient(version string) func(context.Context, string) ([]string, error) {
	return func(ctx context.Context, dir string) ([]string, error) {
		dir = filepath.Join(dir, "java")
		target := filepath.Join(dir, "target", version)
		if err := command(ctx, dir, "mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dkafka.version="+version,
			"-Dmdep.outputFile="+filepath.Join(target, "classpath")); err != nil {
			return nil, err
		}
		jars, err := os.ReadFile(filepath.Join(target, "classpath"))
		if err != nil {
			return nil, err
		}
		return []string{
			"java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
			"-cp", filepath.Join(target, "classes") + ":" + strings.TrimSpace(string(jars)), "cairn.Driver",
		}, nil
	}
}

func pythonClient(script string) func(context.Context, string) ([]string, error) {
	return func(ctx context.Context, dir string) ([]string, error) {
		dir = filepath.Join(dir, "python")
		venv, stamp := filepath.Join(dir, "target", "venv"), filepath.Join(dir, "target", "installed.txt")
		python := filepath.Join(venv, "bin", "python")
		want, err := os.ReadFile(filepath.Join(dir, "requirements.txt"))
		if err != nil {
			return nil, err
		}
		if got, err := os.ReadFile(stamp); err != nil || !bytes.Equal(got, want) {
			if err := errors.Join(command(ctx, dir, "python3", "-m", "venv", "--clear", venv),
				command(ctx, dir, python, "-m", "pip", "install", "-q", "--no-deps", "-r", "requirements.txt"),
				os.WriteFile(stamp, want, 0o600)); err != nil {
				return nil, errors.Join(err, os.RemoveAll(venv))
			}
		}
		return []string{python, "-u", filepath.Join(dir, script)}, nil
	}
}

func kcatClient(_ context.Context, dir string) ([]string, error) {
	return []string{"python3", "-u", filepath.Join(dir, "python", "kcat.py")}, nil
}

func nodeClient(ctx context.Context, dir string) ([]string, error) {
	dir = filepath.Join(dir, "node")
	return []string{"node", filepath.Join(dir, "kafkajs.js")}, command(ctx, dir, "npm", "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund")
}

func goClient(library string) func(context.Context, string) ([]string, error) {
	return func(ctx context.Context, dir string) ([]string, error) {
		dir = filepath.Join(dir, "go")
		program := filepath.Join(dir, "target", "driver")
		return []string{program, library}, command(ctx, dir, "go", "build", "-o", program, ".")
	}
}

// playClients plays the common scenarios with one client after the other on one cluster.
func (r *runner) playClients(ctx context.Context, binary string) error {
	c, err := three(binary, quick())
	if err != nil {
		return err
	}
	return r.on(ctx, c, func() error {
		var plays []*play
		defer func() { closePlays(plays) }()
		for _, client := range stockClients() {
			if r.clients == "all" || strings.Contains(client.name, r.clients) || (r.clients == "short" && client.short) {
				p, err := r.playClient(ctx, c, client)
				if err != nil {
					return err
				}
				if p != nil {
					plays = append(plays, p)
				}
			}
		}
		r.playGroups(ctx, c, clientsShape, plays)
		return nil
	})
}

// playClient installs a client and plays with it what it can do by itself. It returns nil for a client that could not be installed.
func (r *runner) playClient(ctx context.Context, c *harness.Cluster, client stockClient) (*play, error) {
	p, err := r.open(ctx, c, client)
	if err != nil || p == nil {
		return nil, err
	}
	for _, row := range p.scenarios() {
		r.check(clientsShape, client.name, row.name, row.do)
	}
	return p, nil
}

// open installs a client and makes its topics. It returns nil for a client that could not be installed.
func (r *runner) open(ctx context.Context, c *harness.Cluster, client stockClient) (*play, error) {
	for _, tool := range client.tools {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, r.skip(client.name, tool+" is missing (.ci/setup installs it)")
		}
	}
	root, err := harness.Root()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	words, err := client.install(ctx, filepath.Join(root, "integration", "compat", "clients"))
	if err != nil {
		r.check(clientsShape, client.name, "install", func() error { return err })
		return nil, nil
	}
	fmt.Printf("     %s is installed (%v)\n", client.name, time.Since(begun).Round(10*time.Millisecond))
	cl, err := kgo.NewClient(append(workload.ClientOptions(c.Bootstrap()), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		return nil, err
	}
	slug := strings.NewReplacer(" ", "-", ",", "", "=", "-").Replace(strings.ToLower(client.name))
	d := &driver{command: words, at: strings.Join(c.Bootstrap(), ","), log: filepath.Join(c.Dir, slug+".stderr")}
	p := &play{ctx: ctx, c: c, client: cl, admin: kadm.NewClient(cl), driver: d, name: client.name, slug: slug, drops: client.drops, settle: settleTime}
	if err := p.topics(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// close ends what the play has started.
func (p *play) close() {
	p.endMembers()
	p.driver.close()
	p.client.Close()
}

func closePlays(plays []*play) {
	for _, p := range plays {
		p.close()
	}
}

// skip notes what cannot run; in CI that is a failure.
func (r *runner) skip(what, why string) error {
	r.skipped++
	fmt.Printf("SKIPPED %s: %s\n", what, why)
	if os.Getenv("CI") == "true" {
		return errors.New("a skip is a failure in CI")
	}
	return nil
}

// lastLine is the end of a log, for an error of one line.
func lastLine(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[len(lines)-1]
}
