package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestCommandLineOnThreeBrokers: the whole life of a topic through the tools of the binary itself.
func TestCommandLineOnThreeBrokers(t *testing.T) {
	c := three(t, nil)
	at := "--bootstrap-server=" + strings.Join(c.Bootstrap(), ",")
	if got := cairn(t, "", "topics", "create", at, "--topic", "chat", "--partitions", "3", "--replication-factor", "3"); got != "Created topic chat.\n" {
		t.Errorf("create printed %q", got)
	}
	if got := cairn(t, "", "topics", "list", at, "--exclude-internal"); got != "chat\n" {
		t.Errorf("list printed %q", got)
	}
	var topics []struct {
		Topic      string
		TopicID    string
		Partitions []struct {
			Leader   int32
			Replicas []int32
			ISR      []int32
		}
	}
	must(t, json.Unmarshal([]byte(cairn(t, "", "topics", "describe", at, "--topic", "chat", "--json")), &topics))
	if len(topics) != 1 || len(topics[0].Partitions) != 3 || len(topics[0].TopicID) != 22 || len(topics[0].Partitions[0].Replicas) != 3 {
		t.Errorf("description %+v", topics)
	}
	var in strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&in, "key-%d:value-%d\n", i%10, i)
	}
	cairn(t, in.String(), "produce", at, "--topic", "chat", "--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
	out := cairn(t, "", "consume", at, "--topic", "chat", "--from-beginning", "--max-messages", "1000", "--timeout-ms", "20000",
		"--formatter-property", "print.key=true", "--formatter-property", "print.partition=true")
	checkKeyOrder(t, out)
	cairn(t, "", "topics", "alter", at, "--topic", "chat", "--partitions", "5", "--config", "retention.ms=3600000")
	text := cairn(t, "", "topics", "describe", at, "--topic", "chat")
	if !strings.Contains(text, "PartitionCount: 5\tReplicationFactor: 3\tConfigs: retention.ms=3600000") {
		t.Errorf("describe printed\n%s", text)
	}
	cairn(t, "", "topics", "delete", at, "--topic", "chat")
	if got := cairn(t, "", "topics", "list", at, "--exclude-internal"); got != "" {
		t.Errorf("list after the delete printed %q", got)
	}
}

// checkKeyOrder checks that each key stays in one partition and its values in order.
func checkKeyOrder(t *testing.T, out string) {
	t.Helper()
	last, home := map[string]int{}, map[string]string{}
	n := 0
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		var v int
		if len(f) != 3 {
			t.Fatalf("line %q", line)
		}
		_, err := fmt.Sscanf(f[2], "value-%d", &v)
		must(t, err)
		if p, ok := home[f[1]]; ok && (p != f[0] || v <= last[f[1]]) {
			t.Errorf("%s: value %d in %s behind %d in %s", f[1], v, f[0], last[f[1]], p)
		}
		home[f[1]], last[f[1]] = f[0], v
		n++
	}
	if n != 1000 {
		t.Errorf("%d records came back, not 1000", n)
	}
}

// TestDumpOfAStoppedNode: the stored batches as Kafka's tool prints them.
func TestDumpOfAStoppedNode(t *testing.T) {
	c := single(t, nil)
	node := c.Nodes[0]
	at := "--bootstrap-server=" + node.Addr
	cairn(t, "", "topics", "create", at, "--topic", "dumped", "--partitions", "1")
	cairn(t, "k1:one\nk2:two\n", "produce", at, "--topic", "dumped", "--sync", "--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
	must(t, node.Stop(20*time.Second))
	out := cairn(t, "", "dump", "--data-dir", node.DataDir(), "--topic", "dumped", "--partition", "0", "--print-data-log")
	for _, want := range []string{
		"Log starting offset: 0\n", "baseOffset: 0 lastOffset: 0 count: 1 baseSequence: 0 lastSequence: 0 producerId: ", " isTransactional: false isControl: false ",
		"baseOffset: 1 lastOffset: 1 count: 1 baseSequence: 1 lastSequence: 1 ", " compresscodec: none crc: ", " isvalid: true\n",
		"| offset: 0 CreateTime: ", " keySize: 2 valueSize: 3 sequence: 0 headerKeys: [] key: k1 payload: one\n", " key: k2 payload: two\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the dump has no %q:\n%s", want, out)
		}
	}
	if raft := cairn(t, "", "dump", "--data-dir", node.DataDir(), "--topic", "dumped", "--partition", "0", "--raft"); strings.Count(raft, "\n") < 4 {
		t.Errorf("the dump of the Raft log has too few lines:\n%s", raft)
	}
	must(t, node.Start())
	_, err := node.WaitReady(deadline(t, 20*time.Second))
	must(t, err)
}
