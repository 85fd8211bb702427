package integration

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/integration/harness"
	"cairn/integration/workload"
	"cairn/internal/properties"
)

// TestKilledNodeKeepsAcknowledgedRecords: one node, replication factor 1, killed at random moments under load with acks=all.
func TestKilledNodeKeepsAcknowledgedRecords(t *testing.T) {
	c := single(t, nil)
	rng := seeded(t)
	node := c.Nodes[0]
	topic := "killed"
	must(t, workload.CreateTopic(deadline(t, 20*time.Second), c.Bootstrap(), topic, 4, 1, nil))
	load, err := workload.Start(c.Bootstrap(), workload.Options{Topic: topic, Partitions: 4, RecordBytes: 500, MaxBuffered: 2000, Every: 200 * time.Microsecond})
	must(t, err)
	var slowest time.Duration
	n := rounds(t, 5, 50)
	for round := range n {
		must(t, load.WaitAcked(deadline(t, 30*time.Second), 100+rng.IntN(3000)))
		must(t, node.Kill())
		if round == 0 {
			dumpsUntouched(t, node.DataDir())
		}
		must(t, node.Start())
		took, err := node.WaitReady(deadline(t, 30*time.Second))
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		slowest = max(slowest, took)
	}
	must(t, load.WaitAcked(deadline(t, 30*time.Second), 100))
	must(t, load.Stop(deadline(t, time.Minute)))
	if failed, err := load.Failed(); failed > 0 {
		t.Errorf("%d records were given up: %v", failed, err)
	}
	verify(t, c, topic, load.Ledger)
	t.Logf("%d rounds, slowest start to ready %v", n, slowest)
}

// TestRestartServesQuickly: a node that holds much data in 12 partitions serves again within 3 s, after a kill and after an orderly end.
func TestRestartServesQuickly(t *testing.T) {
	size := int64(500 << 20)
	if long() {
		size = 10 << 30
	}
	c := single(t, nil)
	node, topic, record := c.Nodes[0], "restart", 8<<10
	must(t, workload.CreateTopic(deadline(t, 20*time.Second), c.Bootstrap(), topic, 12, 1, nil))
	load, err := workload.Start(c.Bootstrap(), workload.Options{Topic: topic, Partitions: 12, RecordBytes: record})
	must(t, err)
	must(t, load.WaitAcked(deadline(t, 10*time.Minute), int(size/int64(record))))
	for _, end := range []struct {
		name string
		do   func() error
	}{
		{"kill", node.Kill},
		{"stop", func() error { return node.Stop(30 * time.Second) }},
	} {
		must(t, load.Stop(deadline(t, time.Minute)))
		must(t, end.do())
		must(t, node.Start())
		ready, err := node.WaitReady(deadline(t, 30*time.Second))
		must(t, err)
		begun := time.Now()
		read := readBytes(t, node)
		again, err := workload.Start(c.Bootstrap(), workload.Options{Topic: topic, Partitions: 12, RecordBytes: 100, Every: 10 * time.Millisecond})
		must(t, err)
		load = again
		must(t, load.WaitAcked(deadline(t, 30*time.Second), 12))
		served := ready + time.Since(begun)
		t.Logf("%d MB, %s: ready in %v, first records acknowledged %v after the start, %d MB read from files until ready", size>>20, end.name, ready, served, read>>20)
		if ready > 3*time.Second {
			t.Errorf("%s: ready after %v, more than 3 s", end.name, ready)
		}
		// The WAL may be replayed after a kill; it is bounded by the memtables, far below the data.
		if limit := size/4 + 256<<20; read > limit {
			t.Errorf("%s: %d MB were read to get there", end.name, read>>20)
		}
	}
	must(t, load.Stop(deadline(t, time.Minute)))
}

// readBytes is how much the process has read since its start, the page cache included.
func readBytes(t *testing.T, n *harness.Node) int64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(n.PID()), "io"))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "rchar:"); ok {
			v, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			must(t, err)
			return v
		}
	}
	t.Fatal("no rchar in /proc/PID/io")
	return 0
}

// TestDataDirectoryOfAnotherNodeIsRefused: what is not this node's is not touched, and the message says what is wrong.
func TestDataDirectoryOfAnotherNodeIsRefused(t *testing.T) {
	c := single(t, nil)
	node := c.Nodes[0]
	must(t, node.Stop(30*time.Second))
	meta := filepath.Join(node.DataDir(), "meta.properties")
	original, err := os.ReadFile(meta)
	must(t, err)
	plain, sealed, err := properties.Unseal(string(original)) // whoever changes it by hand takes the checksum away
	must(t, err)
	if !sealed {
		t.Errorf("meta.properties has no checksum:\n%s", original)
	}
	for _, tc := range []struct {
		name, from, to string
		want           string // part of what it says
	}{
		{"another node", "node.id=1\n", "node.id=7\n", "node"},
		{"a newer format", "version=", "version=9", "version"},
		{"another cluster", "cluster.id=", "cluster.id=x", "cluster"},
		{"damaged", "#", "!", "meta.properties is damaged"},
	} {
		text := plain
		if tc.name == "damaged" {
			text = string(original)
		}
		if !strings.Contains(text, tc.from) {
			t.Fatalf("meta.properties has no %q:\n%s", tc.from, text)
		}
		must(t, os.WriteFile(meta, []byte(strings.Replace(text, tc.from, tc.to, 1)), 0o600))
		must(t, os.Truncate(node.LogFile(), 0))
		must(t, node.Start())
		code, err := node.ExitCode(deadline(t, 20*time.Second))
		must(t, err)
		if code == 0 || !strings.Contains(strings.ToLower(node.LogTail()), tc.want) {
			t.Errorf("%s: exit code %d, log:\n%s", tc.name, code, node.LogTail())
		}
	}
	must(t, os.WriteFile(meta, original, 0o600))
	must(t, node.Start())
	_, err = node.WaitReady(deadline(t, 20*time.Second))
	must(t, err)
}

// TestSecondProcessOnADataDirectoryIsRefused: the first goes on.
func TestSecondProcessOnADataDirectoryIsRefused(t *testing.T) {
	c := single(t, nil)
	other, err := harness.Single(cairnBinary(t), map[string]string{"log.dirs": c.Nodes[0].DataDir()})
	manage(t, other, err)
	must(t, other.Nodes[0].Start())
	code, err := other.Nodes[0].ExitCode(deadline(t, 20*time.Second))
	must(t, err)
	if code == 0 {
		t.Errorf("exit code 0, log:\n%s", other.Nodes[0].LogTail())
	}
	must(t, workload.CreateTopic(deadline(t, 20*time.Second), c.Bootstrap(), "still-there", 1, 1, nil))
}

// TestPropertiesThatMakeNoSenseAreRefused: unknown names and contradictions are errors at start, with all of them told at once.
func TestPropertiesThatMakeNoSenseAreRefused(t *testing.T) {
	c, err := harness.Single(cairnBinary(t), map[string]string{"log.retention.hourz": "1", "num.partitions": "none"})
	manage(t, c, err)
	must(t, c.Nodes[0].Start())
	code, err := c.Nodes[0].ExitCode(deadline(t, 20*time.Second))
	must(t, err)
	for _, want := range []string{"log.retention.hourz", "num.partitions"} {
		if !strings.Contains(c.Nodes[0].LogTail(), want) {
			t.Errorf("the log does not name %s:\n%s", want, c.Nodes[0].LogTail())
		}
	}
	if code == 0 {
		t.Error("exit code 0")
	}
}

// TestHealthAndMetrics: liveness, readiness, and metrics that move with the load.
func TestHealthAndMetrics(t *testing.T) {
	c := single(t, nil)
	node := c.Nodes[0]
	for _, path := range []string{"/livez", "/readyz"} {
		if code, body, err := node.Get(path); err != nil || code != 200 {
			t.Errorf("%s: %d %q, %v", path, code, body, err)
		}
	}
	must(t, workload.CreateTopic(deadline(t, 20*time.Second), c.Bootstrap(), "metered", 2, 1, nil))
	load, err := workload.Start(c.Bootstrap(), workload.Options{Topic: "metered", Partitions: 2, RecordBytes: 1000, Every: time.Millisecond})
	must(t, err)
	must(t, load.WaitAcked(deadline(t, 20*time.Second), 500))
	must(t, load.Stop(deadline(t, 20*time.Second)))
	code, body, err := node.Get("/metrics")
	if err != nil || code != 200 {
		t.Fatalf("/metrics: %d, %v", code, err)
	}
	for _, want := range []string{"cairn_", "# HELP", "_seconds", "_bytes", "_total", "go_goroutines"} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics has no %q", want)
		}
	}
}

// TestTermEndsTheProcessInOrder: SIGTERM under load ends it with code 0, and what was acknowledged is there.
func TestTermEndsTheProcessInOrder(t *testing.T) {
	c := single(t, nil)
	node, topic := c.Nodes[0], "term"
	must(t, workload.CreateTopic(deadline(t, 20*time.Second), c.Bootstrap(), topic, 3, 1, nil))
	load, err := workload.Start(c.Bootstrap(), workload.Options{Topic: topic, Partitions: 3, RecordBytes: 300, MaxBuffered: 1000})
	must(t, err)
	for range 3 {
		must(t, load.WaitAcked(deadline(t, 30*time.Second), 5000))
		must(t, node.Stop(20*time.Second))
		must(t, node.Start())
		_, err := node.WaitReady(deadline(t, 20*time.Second))
		must(t, err)
	}
	must(t, load.Stop(deadline(t, time.Minute)))
	verify(t, c, topic, load.Ledger)
}
