package broker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
)

// testTimeout bounds what a test waits for.
const testTimeout = 30 * time.Second

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// testLog writes to the test's own log, so that a failing test shows it.
func testLog(t *testing.T) *zap.Logger {
	return zaptest.NewLogger(t, zaptest.Level(zap.InfoLevel))
}

// startNode starts a node with one combined role on free ports, and waits until it is ready.
func startNode(t *testing.T, dir string, overrides ...string) *Node {
	t.Helper()
	cfg := mustLoad(t, append([]string{"log.dirs=" + dir, "listeners=PLAINTEXT://127.0.0.1:0", "metrics.listener=127.0.0.1:0"}, overrides...)...)
	n, err := Start(testContext(t), cfg, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	awaitReady(t, n)
	return n
}

func awaitReady(t *testing.T, n *Node) {
	t.Helper()
	select {
	case <-n.Ready():
	case <-n.Done():
		t.Fatalf("node stopped: %v", n.Err())
	case <-testContext(t).Done():
		t.Fatal("node not ready")
	}
}

func stopNode(t *testing.T, n *Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testTimeout)
	defer cancel()
	if err := n.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// clientAddress is where clients reach the node.
func clientAddress(n *Node) string {
	for _, l := range n.server.bound() {
		if !l.controller {
			return l.Addr().String()
		}
	}
	panic("BUG: no broker listener")
}

func newTestClient(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func TestOneNodeServesAndKeepsRecordsAcrossARestart(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, dir)
	cl := newTestClient(t, kgo.SeedBrokers(clientAddress(n)), kgo.AllowAutoTopicCreation())
	for i := range 10 {
		if err := cl.ProduceSync(testContext(t), &kgo.Record{Topic: "t", Value: fmt.Appendf(nil, "v%d", i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	cl.Close()
	stopNode(t, n)

	n = startNode(t, dir)
	defer stopNode(t, n)
	consumer := newTestClient(t, kgo.SeedBrokers(clientAddress(n)), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}))
	var got []string
	for len(got) < 10 {
		fs := consumer.PollFetches(testContext(t))
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	for i, v := range got {
		if v != fmt.Sprintf("v%d", i) {
			t.Fatalf("got %v", got)
		}
	}
}

func TestNodeLeavesNothingRunning(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	n := startNode(t, t.TempDir())
	stopNode(t, n)
	if _, err := net.Dial("tcp", n.MetricsAddress()); err == nil {
		t.Error("the metrics listener is still open")
	}
}

// freeAddresses are loopback addresses with ports that were free a moment ago.
func freeAddresses(t *testing.T, n int) []string {
	t.Helper()
	var list []string
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		list = append(list, ln.Addr().String())
	}
	return list
}

func TestEndpointForOtherNodesComesFirst(t *testing.T) {
	n := &Node{cfg: &Config{}, server: &server{}}
	n.cfg.InterBroker = "IN"
	n.cfg.Advertised = []ListenerConfig{{Name: "OUT", Host: "a", Port: 1}, {Name: "IN", Host: "b", Port: 2}, {Name: "OTHER", Host: "c", Port: 3}}
	list, err := n.endpoints()
	if err != nil || len(list) != 3 || list[0].Name != "IN" || list[1].Name != "OUT" || list[2].Name != "OTHER" {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestStartOnAPortInUseLeavesTheDiskAlone: neither a directory is made, nor is the mark of an orderly stop taken away.
func TestStartOnAPortInUseLeavesTheDiskAlone(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dir := filepath.Join(t.TempDir(), "data")
	cfg := mustLoad(t, "listeners=PLAINTEXT://"+ln.Addr().String(), "log.dirs="+dir)
	if n, err := Start(testContext(t), cfg, testLog(t)); err == nil {
		stopNode(t, n)
		t.Fatal("it starts")
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the data directory: %v", err)
	}
}

// TestDamagedMetadataReplicaFileIsRefused: whichever bit of it flips, the broker does not take part in the metadata group as another replica.
func TestDamagedMetadataReplicaFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, metadataReplicaFile)
	if err := writeMetadataReplica(dir, 1001); err != nil {
		t.Fatal(err)
	}
	if id, err := readMetadataReplica(dir); err != nil || id != 1001 {
		t.Fatalf("%d, %v", id, err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 * len(good) {
		b := slices.Clone(good)
		b[i/8] ^= 1 << (i % 8)
		if id, err := parseMetadataReplica(string(b)); err == nil {
			t.Errorf("bit %d: replica %d", i, id)
		}
	}
	if err := os.WriteFile(path, append(good, '1'), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readMetadataReplica(dir); err == nil || !strings.Contains(err.Error(), path+" is damaged") {
		t.Errorf("error %v", err)
	}
	if id, err := parseMetadataReplica(metadataReplicaText(7)); err != nil || id != 7 { // of before there was a checksum
		t.Errorf("%d, %v", id, err)
	}
}
