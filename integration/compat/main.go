package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

// clientTimeout bounds one client process.
const clientTimeout = 3 * time.Minute

const textBytes = 10 << 20

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	only := flag.String("only", "", "play only the story of that `NAME`; \"clients\" are the scenarios of all clients")
	clients := flag.String("clients", "short", "which clients play the scenarios: short, all, none, or those with the `NAME`")
	inflight := flag.Int("inflight", idempotentRecords, "`RECORDS` that the idempotent producer on a bad network writes")
	defaults := flag.Bool("defaults", false, "only groups of Java and franz-go with the timeouts that clients and brokers have by default")
	flag.Parse()
	if *inflight < 1 {
		fmt.Fprintf(os.Stderr, "-inflight=%d: want at least one record\n", *inflight)
		os.Exit(2)
	}
	r := &runner{only: *only, clients: *clients, inflight: *inflight, defaults: *defaults}
	if err := r.run(ctx); err != nil {
		r.failed++
		fmt.Println("FAIL", err)
	}
	fmt.Println(r.tally.String())
	if r.failed > 0 {
		os.Exit(1)
	}
}

// runner runs checks one after the other and counts them.
type runner struct {
	tally

	only     string // the story to play, empty for everything
	clients  string // which clients play the scenarios
	inflight int    // records of the idempotent producer on a bad network
	defaults bool   // only groups at the defaults

	java    string // directory of the Maven project
	classes string // class path of the built project
	work    string // temporary files
	text    string // file of real text
	lines   int    // of it
}

func (r *runner) run(ctx context.Context) (err error) {
	var b harness.Builder
	binary, err := b.Binary()
	if err != nil {
		return err
	}
	if r.defaults {
		return r.playDefaults(ctx, binary)
	}
	if r.only == "" || r.only == clientsShape {
		if err := r.playClients(ctx, binary); err != nil {
			return err
		}
	}
	if r.only != clientsShape {
		if err := r.kafkaTools(ctx, binary); err != nil {
			return err
		}
	}
	if r.only != "" && (r.only != clientsShape || r.clients != "all") {
		return nil
	}
	return r.writeTable(r.clients == "all" && r.skipped == 0)
}

// kafkaTools runs Kafka's Java client and tools: the stories, and what is written and read back.
func (r *runner) kafkaTools(ctx context.Context, binary string) (err error) {
	for _, tool := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return r.skip("Kafka's tools", tool+" is missing (.ci/setup installs it)")
		}
	}
	if r.work, err = os.MkdirTemp(os.Getenv("CAIRN_TEST_DIR"), "cairn-compat-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	if err := r.build(ctx); err != nil {
		return err
	}
	if err := r.stories(ctx, binary); err != nil || r.only != "" {
		return err
	}
	if err := r.writeText(); err != nil {
		return err
	}
	for _, shape := range []struct {
		name   string
		codecs []string
		make   func() (*harness.Cluster, error)
	}{
		{"one node", []string{"none", "gzip", "snappy", "lz4", "zstd"}, func() (*harness.Cluster, error) { return harness.Single(binary, nil) }},
		{"three nodes", []string{"none", "zstd"}, func() (*harness.Cluster, error) { return harness.Three(binary, nil) }},
	} {
		c, err := shape.make()
		if err != nil {
			return err
		}
		if err := r.on(ctx, c, func() error { return r.against(ctx, c, shape.name, shape.codecs) }); err != nil {
			return err
		}
	}
	return nil
}

// build compiles the Maven project and learns its class path.
func (r *runner) build(ctx context.Context) error {
	root, err := harness.Root()
	if err != nil {
		return err
	}
	r.java = filepath.Join(root, "integration", "compat", "java")
	pathFile := filepath.Join(r.java, "target", "classpath")
	mvn := exec.CommandContext(ctx, "mvn", "-q", "-B", "compile", "dependency:build-classpath", "-Dmdep.outputFile="+pathFile)
	mvn.Dir, mvn.Stdout, mvn.Stderr = r.java, os.Stdout, os.Stderr
	if err := mvn.Run(); err != nil {
		return fmt.Errorf("building the Java clients: %w", err)
	}
	jars, err := os.ReadFile(pathFile)
	if err != nil {
		return err
	}
	r.classes = filepath.Join(r.java, "target", "classes") + ":" + strings.TrimSpace(string(jars))
	return nil
}

// writeText makes a file of at least textBytes of real text: the sources of Go's standard library. Java's console tools read and write
// text, so only lines of UTF-8 without a carriage return are taken.
func (r *runner) writeText() error {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	var text []byte
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(out)), "src"), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(p, ".go") {
			return err
		}
		file, err := os.ReadFile(p)
		for line := range bytes.Lines(file) {
			if bytes.HasSuffix(line, []byte("\n")) && !bytes.ContainsRune(line, '\r') && bytes.Equal(line, bytes.ToValidUTF8(line, nil)) {
				text = append(text, line...)
				r.lines++
			}
		}
		if err == nil && len(text) >= textBytes {
			return fs.SkipAll
		}
		return err
	})
	if err != nil {
		return err
	}
	r.text = filepath.Join(r.work, "text")
	return os.WriteFile(r.text, text, 0o600)
}

// against runs all checks on a cluster. What a check finds is counted; an error is one that ends everything.
func (r *runner) against(ctx context.Context, c *harness.Cluster, shape string, codecs []string) error {
	for _, codec := range codecs {
		r.check(shape, "Java client", "producer and consumer, text, "+codec, func() error { return r.roundTrip(ctx, c, codec, "text", r.text) })
		r.check(shape, "Java client", "producer and consumer, binary, "+codec, func() error {
			return r.roundTrip(ctx, c, codec, "binary", strconv.FormatInt(time.Now().UnixNano(), 10))
		})
		r.check(shape, "ConsoleProducer, ConsoleConsumer", "by partition, "+codec, func() error { return r.console(ctx, c, codec) })
	}
	r.check(shape, "VerifiableProducer", "100 records, acks=all", func() error {
		if err := newTopic(ctx, c, "verifiable"); err != nil {
			return err
		}
		return r.verifiableProducer(ctx, strings.Join(c.Bootstrap(), ","), "verifiable")
	})
	r.check(shape, "VerifiableConsumer", "reads them, in a group", func() error {
		return r.verifiableConsumer(ctx, strings.Join(c.Bootstrap(), ","), "verifiable")
	})
	r.check(shape, "TopicCommand", "create, describe, list, delete", func() error { return r.topics(ctx, c) })
	return nil
}

// newTopic creates a topic of one partition on all brokers.
func newTopic(ctx context.Context, c *harness.Cluster, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return workload.CreateTopic(ctx, c.Bootstrap(), name, 1, int16(len(c.Brokers())), nil)
}

// jvm runs a class of the project or of Kafka.
func (r *runner) jvm(ctx context.Context, stdin *os.File, class string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "java", append([]string{"-Xmx512m", "-XX:+UseSerialGC", "-cp", r.classes, class}, args...)...)
	if stdin != nil {
		cmd.Stdin = stdin
	}
	var out, errText bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errText
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", class, err, tail(errText.Bytes()))
	}
	return out.Bytes(), nil
}

func tail(b []byte) []byte { return b[max(0, len(b)-3000):] }

func (r *runner) roundTrip(ctx context.Context, c *harness.Cluster, codec, kind, arg string) error {
	topic := "java-" + kind + "-" + codec
	if err := newTopic(ctx, c, topic); err != nil {
		return err
	}
	_, err := r.jvm(ctx, nil, "cairn.RoundTrip", strings.Join(c.Bootstrap(), ","), topic, codec, kind, arg)
	return err
}

// console pipes the text through the console producer and back through the console consumer.
func (r *runner) console(ctx context.Context, c *harness.Cluster, codec string) (err error) {
	topic, at := "console-"+codec, strings.Join(c.Bootstrap(), ",")
	if err := newTopic(ctx, c, topic); err != nil {
		return err
	}
	in, err := os.Open(r.text)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	if _, err := r.jvm(ctx, in, "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", at, "--topic", topic, "--compression-codec", codec,
		"--command-property", "batch.size=200000", "--request-timeout-ms", "20000"); err != nil {
		return err
	}
	got, err := r.jvm(ctx, nil, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", at, "--topic", topic,
		"--partition", "0", "--offset", "earliest", "--max-messages", strconv.Itoa(r.lines), "--timeout-ms", "30000")
	if err != nil {
		return err
	}
	want, err := os.ReadFile(r.text)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%d bytes came back, not the %d written", len(got), len(want))
	}
	return nil
}

// topics creates, describes and deletes a topic with Kafka's own command.
func (r *runner) topics(ctx context.Context, c *harness.Cluster) error {
	command := func(args ...string) (string, error) {
		out, err := r.jvm(ctx, nil, "org.apache.kafka.tools.TopicCommand", append([]string{"--bootstrap-server", strings.Join(c.Bootstrap(), ",")}, args...)...)
		return string(out), err
	}
	if out, err := command("--create", "--topic", "stock", "--partitions", "3", "--replication-factor", strconv.Itoa(len(c.Brokers()))); err != nil ||
		!strings.Contains(out, "Created topic stock.") {
		return fmt.Errorf("create printed %q: %w", out, err)
	}
	out, err := command("--describe", "--topic", "stock")
	if err != nil {
		return err
	}
	if !strings.Contains(out, "PartitionCount: 3") || strings.Count(out, "\tPartition: ") != 3 {
		return fmt.Errorf("describe printed %q", out)
	}
	if out, err := command("--list"); err != nil || !strings.Contains(out, "stock\n") {
		return fmt.Errorf("list printed %q: %w", out, err)
	}
	_, err = command("--delete", "--topic", "stock")
	return err
}
