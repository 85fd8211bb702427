package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn/tools"
)

// quick lets brokers be fenced, and leases end, soon.
func quick() map[string]string {
	return map[string]string{"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300", "replica.lag.time.max.ms": "3000"}
}

// describe returns the description of partition 0 of a topic.
func describe(t *testing.T, at, topic string) (p struct {
	Leader             int32
	Replicas, ISR, ELR []int32
},
) {
	t.Helper()
	var topics []struct{ Partitions []json.RawMessage }
	must(t, json.Unmarshal([]byte(cairn(t, "", "topics", "describe", at, "--topic", topic, "--json")), &topics))
	must(t, json.Unmarshal(topics[0].Partitions[0], &p))
	return p
}

// until asks again and again until ok.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(40 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not reached: %s", what)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

// TestLostRecordsAreForetoldReportedAndRecovered: an unclean election by the commands of the binary, from the dry run to the
// records in a topic of their own.
func TestLostRecordsAreForetoldReportedAndRecovered(t *testing.T) {
	c := three(t, quick())
	at := "--bootstrap-server=" + strings.Join(c.Bootstrap(), ",")
	cairn(t, "", "topics", "create", at, "--topic", "orders", "--replica-assignment", "1:3")
	cairn(t, "", "topics", "create", at, "--topic", "saved", "--replica-assignment", "2:3")
	var lines strings.Builder
	for i := range 20 {
		fmt.Fprintf(&lines, "v%d\n", i)
	}
	at = "--bootstrap-server=" + c.Bootstrap()[1] // the one that stays
	must(t, c.Node(3).Freeze())
	until(t, "broker 3 is out of sync", func() bool { return len(describe(t, at, "orders").ISR) == 1 })
	cairn(t, lines.String(), "produce", at, "--topic", "orders", "--acks", "1", "--sync")
	elect := []string{"elect", at, "--election-type", "unclean", "--topic", "orders", "--partition", "0"}
	var previews []tools.ElectionPreview
	must(t, json.Unmarshal([]byte(cairn(t, "", append(elect, "--dry-run", "--json")...)), &previews))
	if r := previews[0].Replicas[0]; r.LogEnd != 20 || !r.Live || previews[0].Elects != -1 {
		t.Fatalf("before the death: %+v", previews[0])
	}
	must(t, c.Node(1).Kill())
	must(t, c.Node(3).Thaw())
	until(t, "broker 3 is asked", func() bool {
		must(t, json.Unmarshal([]byte(cairn(t, "", append(elect, "--dry-run", "--json")...)), &previews))
		return previews[0].Leader < 0 && previews[0].Replicas[1].Live
	})
	lost := tools.LostRange{LeaderEpoch: previews[0].Replicas[0].LeaderEpoch, From: 0, To: 20}
	if p := previews[0]; p.Elects != 3 || p.Clean || len(p.Loses) != 1 || p.Loses[0] != lost || !p.Replicas[0].InELR || p.Replicas[0].AgeMs <= 0 {
		t.Errorf("the dry run says %+v", p)
	}
	if got, want := cairn(t, "", elect...), "Successfully completed leader election (UNCLEAN) for partitions orders-0\n"; got != want {
		t.Errorf("elect printed %q", got)
	}
	if got, want := cairn(t, "", elect...), "Valid replica already elected for partitions orders-0\n"; got != want {
		t.Errorf("a second election printed %q", got)
	}
	losses := func() (list []tools.Loss) {
		must(t, json.Unmarshal([]byte(cairn(t, "", "losses", at, "--topic", "orders", "--json")), &list))
		return list
	}
	if l := losses(); len(l) != 1 || l[0].LostRange != lost || !l[0].Estimated || l[0].Broker != 1 {
		t.Errorf("losses %+v", l)
	}
	must(t, c.Node(1).Start())
	until(t, "broker 1 is back in sync", func() bool { return len(describe(t, at, "orders").ISR) == 2 })
	until(t, "broker 1 has reported", func() bool { l := losses(); return len(l) == 1 && !l[0].Estimated })
	if l := losses(); l[0].LostRange != lost || l[0].Broker != 1 || l[0].DroppedMs != 0 {
		t.Errorf("losses %+v", l)
	}
	got := cairn(t, "", "recover", at, "--topic", "orders", "--partition", "0", "--broker", "1", "--to", "saved", "--remove")
	if !strings.HasPrefix(got, "Recovered 20 records of orders-0 from quarantine at broker 1 to saved: offsets 0..19 of leader epoch ") {
		t.Errorf("recover printed %q", got)
	}
	if l := losses(); len(l) != 1 || l[0].DroppedMs == 0 || l[0].RecoveredTo != "saved" {
		t.Errorf("losses after the removal %+v", l)
	}
	got = cairn(t, "", "consume", at, "--topic", "saved", "--from-beginning", "--max-messages", "20", "--timeout-ms", "20000")
	if got != lines.String() {
		t.Errorf("recovered %q", got)
	}
}

// TestReassignmentByTheCommands moves a partition under its own replicas' feet: a new one, another preferred leader, one less.
func TestReassignmentByTheCommands(t *testing.T) {
	c := three(t, quick())
	at := "--bootstrap-server=" + strings.Join(c.Bootstrap(), ",")
	cairn(t, "", "topics", "create", at, "--topic", "orders", "--replica-assignment", "1:2")
	cairn(t, "a\nb\nc\n", "produce", at, "--topic", "orders")
	for i, replicas := range []string{"3,1", "2", "1,2,3"} {
		file := filepath.Join(t.TempDir(), fmt.Sprintf("move%d.json", i))
		text := fmt.Sprintf(`{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[%s]}]}`, replicas)
		must(t, os.WriteFile(file, []byte(text), 0o600))
		got := cairn(t, "", "reassign", "execute", at, "--reassignment-json-file", file)
		if !strings.HasSuffix(got, "Successfully started partition reassignment for orders-0\n") {
			t.Errorf("execute printed %q", got)
		}
		until(t, "moved to "+replicas, func() bool { return cairn(t, "", "reassign", "list", at) == "No partition reassignments found.\n" })
		if p := describe(t, at, "orders"); fmt.Sprint(p.Replicas) != "["+strings.ReplaceAll(replicas, ",", " ")+"]" || len(p.ISR) != len(p.Replicas) {
			t.Errorf("moved to %s: %+v", replicas, p)
		}
		got = cairn(t, "", "reassign", "verify", at, "--reassignment-json-file", file)
		if got != "Status of partition reassignment:\nReassignment of partition orders-0 is completed.\n\n"+
			"Clearing broker-level throttles on brokers 1,2,3\nClearing topic-level throttles on topic orders\n" {
			t.Errorf("verify printed %q", got)
		}
	}
	cairn(t, "", "elect", at, "--election-type", "preferred", "--topic", "orders", "--partition", "0")
	if p := describe(t, at, "orders"); p.Leader != 1 {
		t.Errorf("led by %d", p.Leader)
	}
	got := cairn(t, "", "consume", at, "--topic", "orders", "--from-beginning", "--max-messages", "3", "--timeout-ms", "20000")
	if got != "a\nb\nc\n" {
		t.Errorf("read %q", got)
	}
}
