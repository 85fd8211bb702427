package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

// keptShare is the part of the foreground's throughput that a reassignment must leave.
const keptShare = 0.8

// mover moves a topic about under load and measures what the load gets meanwhile.
type mover struct {
	t          *testing.T
	c          *harness.Cluster
	topic      string
	partitions int32
	load       *workload.Load
	usual      float64 // records acknowledged per second before anything moved

	moving time.Duration // the time of all moves
	acked  int           // what was acknowledged in it
}

// TestReassignmentUnderLoadLosesNothing: acks=all load on partitions that move from brokers 1, 2, 3 to 3, 4, 5, then to one replica and back
// to three, with a broker killed on the way of each move. Nothing is lost, no partition is stuck, and the load keeps four fifths of its rate.
func TestReassignmentUnderLoadLosesNothing(t *testing.T) {
	m := startMover(t, "moved", 3, func(p int) []int { return []int{1, 2, 3} })
	for round := range rounds(t, 1, 2) {
		m.move("to other brokers", []int{3, 4, 5}, 4)
		m.move("to one replica", []int{5}, 3)
		m.move("back to three", []int{1, 2, 3}, 2)
		t.Logf("round %d is done", round)
	}
	m.keepsItsShare()
	m.finish()
}

// TestCancelledReassignmentGoesBack: at whatever moment a move is cancelled, the partition comes to rest where it was.
func TestCancelledReassignmentGoesBack(t *testing.T) {
	m := startMover(t, "cancelled", 1, func(int) []int { return []int{1, 2, 3} })
	for i := range rounds(t, 3, 10) {
		file := m.file([]int{3, 4, 5})
		cairn(t, "", "reassign", "execute", m.at(), "--reassignment-json-file", file)
		m.pause(time.Duration(i*i) * 60 * time.Millisecond)
		cairn(t, "", "reassign", "cancel", m.at(), "--reassignment-json-file", file)
		m.settles("cancelled", 3)
		replicas := describe(t, m.at(), m.topic).Replicas
		if moved := fmt.Sprint(replicas) == "[3 4 5]"; !moved && len(replicas) != 3 {
			t.Errorf("after a cancelled move the replicas are %v", replicas)
		}
		must(t, m.load.Ledger.WaitAllMove(deadline(t, 30*time.Second)))
		cairn(t, "", "reassign", "execute", m.at(), "--reassignment-json-file", m.file([]int{1, 2, 3}))
		m.settles("back", 3)
	}
	m.finish()
}

func startMover(t *testing.T, topic string, partitions int, replicas func(int) []int) *mover {
	t.Helper()
	c, err := harness.New(cairnBinary(t), harness.Shape{Brokers: 5, Controllers: 1, Props: quick(), ControllerProps: quick()})
	must(t, err)
	manage(t, c, nil)
	must(t, c.Start(deadline(t, time.Minute)))
	m := &mover{t: t, c: c, topic: topic, partitions: int32(partitions)}
	var assignment []string
	for p := range partitions {
		assignment = append(assignment, strings.Trim(strings.ReplaceAll(fmt.Sprint(replicas(p)), " ", ":"), "[]"))
	}
	cairn(t, "", "topics", "create", m.at(), "--topic", topic, "--replica-assignment", strings.Join(assignment, ","), "--config", "min.insync.replicas=1")
	waitInSync(t, c, topic)
	m.fill()
	m.load, err = workload.Start(c.Bootstrap(), workload.Options{Topic: topic, Partitions: m.partitions, RecordBytes: 1000, Every: 4 * time.Millisecond, MaxBuffered: 50_000})
	must(t, err)
	must(t, m.load.WaitAcked(deadline(t, 30*time.Second), 500))
	m.usual = m.rate(2 * time.Second)
	t.Logf("before: %.0f records/s", m.usual)
	return m
}

// fillerBytes is the size of records that are there only to be copied; the load's are smaller.
const fillerBytes = 64 << 10

// fill gives a replica that joins something to catch up with.
func (m *mover) fill() {
	m.t.Helper()
	megabytes := 16
	if long() {
		megabytes = 128 // a minute and a half for each move at what catching up gets beside clients
	}
	cl, err := kgo.NewClient(append(workload.ClientOptions(m.c.Bootstrap()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))...)
	must(m.t, err)
	defer cl.Close()
	ctx := deadline(m.t, 2*time.Minute)
	value := make([]byte, fillerBytes)
	for range megabytes << 20 / len(value) {
		for p := range m.partitions {
			cl.Produce(ctx, &kgo.Record{Topic: m.topic, Partition: p, Value: value}, nil)
		}
	}
	must(m.t, cl.Flush(ctx))
}

func (m *mover) at() string { return "--bootstrap-server=" + strings.Join(m.c.Bootstrap(), ",") }

// rate is how many records per second are acknowledged in the time to come.
func (m *mover) rate(d time.Duration) float64 {
	before, begun := m.load.Ledger.Len(), time.Now()
	m.pause(d)
	return float64(m.load.Ledger.Len()-before) / time.Since(begun).Seconds()
}

func (m *mover) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-m.t.Context().Done():
	}
}

// file writes the reassignment of all partitions to these replicas, each partition's list turned by one.
func (m *mover) file(replicas []int) string {
	type partition struct {
		Topic     string `json:"topic"`
		Partition int    `json:"partition"`
		Replicas  []int  `json:"replicas"`
	}
	var list []partition
	for p := range int(m.partitions) {
		turn := p % len(replicas)
		list = append(list, partition{m.topic, p, append(append([]int{}, replicas[turn:]...), replicas[:turn]...)})
	}
	text, err := json.Marshal(map[string]any{"version": 1, "partitions": list})
	must(m.t, err)
	path := filepath.Join(m.t.TempDir(), "move.json")
	must(m.t, os.WriteFile(path, text, 0o600))
	return path
}

// move starts a reassignment, kills a broker while it is under way, starts it again, and waits for the end.
func (m *mover) move(what string, replicas []int, victim int) {
	m.t.Helper()
	file, begun, acked := m.file(replicas), time.Now(), m.load.Ledger.Len()
	cairn(m.t, "", "reassign", "execute", m.at(), "--reassignment-json-file", file)
	m.pause(300 * time.Millisecond)
	n := m.c.Node(victim)
	must(m.t, n.Kill())
	must(m.t, m.load.Ledger.WaitAllMove(deadline(m.t, 30*time.Second)))
	must(m.t, n.Start())
	_, err := n.WaitReady(deadline(m.t, time.Minute))
	must(m.t, err)
	m.settles(what, len(replicas))
	must(m.t, m.load.Ledger.WaitAllMove(deadline(m.t, 30*time.Second)))
	took, got := time.Since(begun), m.load.Ledger.Len()-acked
	m.moving, m.acked = m.moving+took, m.acked+got
	m.t.Logf("%s: %v, %.0f %% of the usual throughput", what, took.Round(10*time.Millisecond), 100*float64(got)/took.Seconds()/m.usual)
	cairn(m.t, "", "reassign", "verify", m.at(), "--reassignment-json-file", file)
}

// keepsItsShare looks at the throughput over all moves: the death of a broker on the way of a short one would weigh too much.
func (m *mover) keepsItsShare() {
	m.t.Helper()
	rate := float64(m.acked) / m.moving.Seconds()
	m.t.Logf("while partitions moved: %.0f records/s, %.0f %% of what it was", rate, 100*rate/m.usual)
	if rate < keptShare*m.usual {
		m.t.Errorf("while partitions moved the load got %.0f records/s, less than four fifths of %.0f", rate, m.usual)
	}
}

// settles waits until no reassignment is under way and all replicas are in sync.
func (m *mover) settles(what string, replicas int) {
	m.t.Helper()
	limit := time.Minute
	if long() {
		limit = 10 * time.Minute
	}
	end := time.Now().Add(limit)
	for {
		list := cairn(m.t, "", "reassign", "list", m.at())
		if strings.HasPrefix(list, "No partition reassignments") {
			break
		}
		if time.Now().After(end) {
			m.t.Fatalf("%s: after %v\n%s\n%s", what, limit, list, cairn(m.t, "", "topics", "describe", m.at(), "--topic", m.topic))
		}
		m.pause(100 * time.Millisecond)
	}
	cl, err := kgo.NewClient(workload.ClientOptions(m.c.Bootstrap())...)
	must(m.t, err)
	defer cl.Close()
	must(m.t, workload.WaitTopic(deadline(m.t, limit), kadm.NewClient(cl), m.topic, func(p kadm.PartitionDetail) bool {
		return p.Leader >= 0 && len(p.ISR) == len(p.Replicas) && len(p.Replicas) <= max(replicas, 3)
	}))
}

// finish ends the load and compares what was acknowledged with what is there.
func (m *mover) finish() {
	m.t.Helper()
	must(m.t, m.load.Stop(deadline(m.t, time.Minute)))
	if failed, err := m.load.Failed(); failed > 0 {
		m.t.Errorf("%d records were given up: %v", failed, err)
	}
	records, err := workload.Read(deadline(m.t, 5*time.Minute), m.c.Bootstrap(), m.topic)
	must(m.t, err)
	rep := m.load.Ledger.Check(slices.DeleteFunc(records, func(r workload.Record) bool { return len(r.Value) == fillerBytes }))
	m.t.Logf("%s: %s", m.topic, rep)
	must(m.t, rep.Err())
}
