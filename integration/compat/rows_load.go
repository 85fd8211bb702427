package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// The classes of Kafka's tools for load.
const (
	consumerPerf       = "org.apache.kafka.tools.ConsumerPerformance"
	endToEnd           = "org.apache.kafka.tools.EndToEndLatency"
	verifiableProducer = "org.apache.kafka.tools.VerifiableProducer"
	verifiableConsumer = "org.apache.kafka.tools.VerifiableConsumer"
)

// consumerPerformance reads what ProducerPerformance wrote, with Kafka's tool and with cairn's.
func (s *story) consumerPerformance() error {
	const records = 10_000
	args := []string{"--topic", "stock", "--num-records", fmt.Sprint(records), "--timeout", "30000"}
	kafka := s.kafka(s.ctx, consumerPerf, append(args, "--group", "perf")...)
	own := s.cairn(s.ctx, "bench consume", append(args, "--group", "perf-of-cairn")...)
	for name, a := range map[string]answer{"Kafka's": kafka, "cairn's": own} {
		header, line, _ := strings.Cut(strings.TrimSpace(a.out), "\n")
		fields := strings.Split(line, ", ")
		if a.code != 0 || header != "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec" ||
			len(fields) != 10 || fields[4] != fmt.Sprint(records) {
			return fmt.Errorf("%s tool: %s", name, a)
		}
	}
	return nil
}

// groupOffsets takes the group of ConsumerPerformance through its end.
func (s *story) groupOffsets() error {
	group := func(args ...string) answer { return s.kafka(s.ctx, groupCommand, append(args, "--group", "perf")...) }
	reset := []string{"--group", "perf", "--topic", "stock", "--to-earliest", "--execute"}
	if err := group("--describe").wants(0, "Consumer group 'perf' has no active members.", "perf            stock"); err != nil {
		return err
	}
	kafka := s.kafka(s.ctx, groupCommand, append([]string{"--reset-offsets"}, reset...)...)
	return errors.Join(
		kafka.wants(0, "perf", "stock"), sameLines(kafka, s.cairn(s.ctx, "groups reset-offsets", reset...)),
		group("--delete-offsets", "--topic", "stock").wants(0, "Successful"),
		group("--delete").wants(0, "Deletion of requested consumer groups ('perf') was successful."),
		group("--describe").wants(0, "GroupIdNotFoundException"),
	)
}

func (s *story) endToEndLatency() error {
	a := s.kafka(s.ctx, endToEnd, "--topic", "latency", "--num-records", "200", "--producer-acks", "all", "--record-size", "100")
	return a.wants(0, "Avg latency: ", " ms", "Percentiles: 50th = ")
}

// process runs one of Kafka's tools as a process of its own: one that prints from other threads, or at the end of the process.
func (r *runner) process(ctx context.Context, class string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	args = append([]string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", r.classes, class}, args...)
	out, err := exec.CommandContext(ctx, "java", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, tail(out))
	}
	return string(out), nil
}

func (r *runner) verifiableProducer(ctx context.Context, at, topic string) error {
	out, err := r.process(ctx, verifiableProducer, "--bootstrap-server", at, "--topic", topic, "--max-messages", "100", "--acks", "-1")
	if err != nil {
		return err
	}
	if got := strings.Count(out, `"name":"producer_send_success"`); got != 100 || !strings.Contains(out, `"sent":100,"acked":100`) {
		return fmt.Errorf("%d records acknowledged: %s", got, tail([]byte(out)))
	}
	return nil
}

// verifiableConsumer reads what verifiableProducer wrote.
func (r *runner) verifiableConsumer(ctx context.Context, at, topic string) error {
	out, err := r.process(ctx, verifiableConsumer, "--bootstrap-server", at, "--topic", topic, "--group-id", "verifiable", "--max-messages", "100",
		"--reset-policy", "earliest", "--verbose")
	if err != nil {
		return err
	}
	got := strings.Count(out, `"name":"record_data"`)
	for _, want := range []string{`"name":"startup_complete"`, `"name":"partitions_assigned"`, `"name":"offsets_committed"`, `"success":true`, `"name":"shutdown_complete"`} {
		if got != 100 || !strings.Contains(out, want) {
			return fmt.Errorf("%d records, no %s in %s", got, want, tail([]byte(out)))
		}
	}
	return nil
}
