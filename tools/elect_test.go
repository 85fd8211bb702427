package tools

import (
	"bufio"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/internal/ids"
	"cairn/wire"
	"cairn/wire/private"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files instead of comparing with them")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%swant\n%s", path, got, want)
	}
}

// privateBroker answers the requests of our own tools, and nothing else.
func privateBroker(t *testing.T, answer func(kmsg.Request) kmsg.Response) Connection {
	t.Helper()
	table, err := wire.NewTable(private.APIs()...)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer nc.Close()
				r := bufio.NewReader(nc)
				for {
					frame, err := wire.ReadFrame(r, 1<<20, nil)
					if err != nil {
						return
					}
					hdr, req, err := table.ParseRequest(frame)
					if err != nil {
						return
					}
					if _, err := nc.Write(wire.AppendResponse(nil, hdr, answer(req))); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return Connection{Bootstrap: l.Addr().String(), ClientID: "test"}
}

func TestElectPrintsKafkasLines(t *testing.T) {
	cluster, conn := fakeCluster(t)
	var asked *kmsg.ElectLeadersRequest
	codes := map[int32]int16{}
	cluster.ControlKey(int16(kmsg.ElectLeaders), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked = r.(*kmsg.ElectLeadersRequest)
		resp := r.ResponseKind().(*kmsg.ElectLeadersResponse)
		for _, t := range asked.Topics {
			rt := kmsg.NewElectLeadersResponseTopic()
			rt.Topic = t.Topic
			for _, i := range t.Partitions {
				p := kmsg.NewElectLeadersResponseTopicPartition()
				if p.Partition, p.ErrorCode = i, codes[i]; p.ErrorCode != 0 {
					p.ErrorMessage = kmsg.StringPtr("Failed to elect.")
				}
				rt.Partitions = append(rt.Partitions, p)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	file := filepath.Join(t.TempDir(), "partitions.json")
	text := `{"partitions":[{"topic":"t","partition":3},{"topic":"t","partition":0},{"topic":"t","partition":1},{"topic":"t","partition":2}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, c := testContext(t), &capture{}
	codes[1], codes[2] = kerr.ElectionNotNeeded.Code, kerr.EligibleLeadersNotAvailable.Code
	err := Elect(ctx, conn, ElectOptions{Type: "UNCLEAN", PartitionSelection: PartitionSelection{File: file}}, c.output(false))
	if err == nil || err.Error() != "1 replica(s) could not be elected" {
		t.Errorf("error %v", err)
	}
	if asked.ElectionType != 1 || len(asked.Topics) != 1 || len(asked.Topics[0].Partitions) != 4 {
		t.Errorf("asked for %+v", asked)
	}
	golden(t, "elect.golden", c.out.String())
	err = Elect(ctx, conn, ElectOptions{Type: "preferred", PartitionSelection: PartitionSelection{Topic: "t", Partition: 2}}, c.output(true))
	if err == nil || asked.ElectionType != 0 {
		t.Errorf("error %v, type %d", err, asked.ElectionType)
	}
	golden(t, "elect_json.golden", c.out.String())
	err = Elect(ctx, conn, ElectOptions{Type: "preferred", PartitionSelection: PartitionSelection{All: true}}, c.output(false))
	if err != nil || asked.Topics != nil || c.out.Len() != 0 {
		t.Errorf("all: error %v, asked %+v, printed %q", err, asked, c.out.String())
	}
}

func TestPartitionFilesAreChecked(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		`{`:                                        "unexpected end",
		`{"partitions":[]}`:                        "names no partition",
		`{"partitions":[{"topic":"t"}]}`:           "needs a topic and a partition",
		`{"partitions":[{"partition":1}]}`:         "needs a topic and a partition",
		`{"partitions":[{"topic":1}]}`:             "want {",
		`{"partitions":[` + dup + `,` + dup + `]}`: "t-1 is there twice",
	} {
		file := filepath.Join(dir, "f")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readPartitionsFile(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

const dup = `{"topic":"t","partition":1}`

func TestElectDryRunShowsWhatWouldBeLost(t *testing.T) {
	var asked private.ElectionQuery
	lost := []LostRange{{LeaderEpoch: 4, From: 60, To: 100}}
	dead := ReplicaPreview{
		Broker: 1, InELR: true, Known: true, LeaderEpoch: 4, LogEnd: 100, LastAppendMs: 1_700_000_000_000, AsOfMs: 1_700_000_005_000, AgeMs: 12_340,
	}
	alive := ReplicaPreview{Broker: 3, Alive: true, Known: true, Live: true, LeaderEpoch: 3, LogEnd: 60, LastAppendMs: -1, WouldLose: lost}
	offline := ElectionPreview{
		Topic: "t", Leader: -1, LeaderEpoch: 5, ISR: []int32{}, ELR: []int32{1}, LastKnownELR: []int32{1}, Elects: 3, Loses: lost,
		Outcome:  private.Status{Code: kerr.LeaderNotAvailable.Code, Message: "broker 1 may still act as leader"},
		Replicas: []ReplicaPreview{dead, alive, {Broker: 4, LogEnd: -1, LeaderEpoch: -1, LastAppendMs: -1}},
	}
	led := ElectionPreview{
		Topic: "t", Partition: 1, Leader: 3, ISR: []int32{3}, ELR: []int32{}, Elects: -1,
		Outcome:  private.Status{Code: kerr.ElectionNotNeeded.Code, Message: "Leader election not needed for topic partition."},
		Replicas: []ReplicaPreview{{Broker: 3, Alive: true, InISR: true, Known: true, Live: true, LogEnd: 5, LastAppendMs: 1_700_000_000_000}},
	}
	clean := ElectionPreview{Topic: "t", Partition: 2, Leader: -1, ISR: []int32{3}, Elects: 3, Clean: true, Replicas: led.Replicas, Loses: lost}
	missing := ElectionPreview{Topic: "u", Elects: -1, Leader: -1, Outcome: private.Status{Code: kerr.UnknownTopicOrPartition.Code, Message: "No such topic."}}
	conn := privateBroker(t, func(r kmsg.Request) kmsg.Response {
		asked = r.(*private.ElectionsRequest).Body
		return &private.ElectionsResponse{Body: private.ElectionAnswer{Partitions: []ElectionPreview{offline, led, clean, missing}}}
	})
	ctx, c := testContext(t), &capture{}
	o := ElectOptions{Type: "unclean", DryRun: true, PartitionSelection: PartitionSelection{Topic: "t", Partition: 0}}
	const absent = "1 partition(s) do not exist"
	if err := Elect(ctx, conn, o, c.output(false)); err == nil || !strings.Contains(err.Error(), absent) {
		t.Fatal(err)
	}
	if asked.Type != 1 || len(asked.Topics) != 1 || asked.Topics[0].Partitions[0] != 0 {
		t.Errorf("asked for %+v", asked)
	}
	golden(t, "elect_dry_run.golden", c.out.String())
	if err := Elect(ctx, conn, o, c.output(true)); err == nil || !strings.Contains(err.Error(), absent) {
		t.Fatal(err)
	}
	golden(t, "elect_dry_run_json.golden", c.out.String())
}

func TestElectDryRunTellsWhyThereIsNone(t *testing.T) {
	conn := privateBroker(t, func(kmsg.Request) kmsg.Response {
		return &private.ElectionsResponse{Body: private.ElectionAnswer{Status: private.Status{Code: kerr.RequestTimedOut.Code, Message: "No answer."}}}
	})
	o := ElectOptions{Type: "unclean", DryRun: true, PartitionSelection: PartitionSelection{All: true}}
	if err := Elect(testContext(t), conn, o, (&capture{}).output(false)); err == nil || !strings.Contains(err.Error(), "No answer.; try again") {
		t.Errorf("error %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // as Kafka does with a key it does not know
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			nc.Close()
		}
	}()
	if _, err := ElectDryRun(testContext(t), Connection{Bootstrap: l.Addr().String()}, o); err == nil || !strings.Contains(err.Error(), "is a cairn broker running there?") {
		t.Errorf("against another broker: %v", err)
	}
}

func TestLossesAreListed(t *testing.T) {
	loss := func(cause string, estimated bool) Loss {
		return Loss{
			Topic: "t", TopicID: ids.UUID{1}.String(), LostRange: LostRange{LeaderEpoch: 4, From: 60, To: 100}, Cause: cause, Broker: 1,
			Estimated: estimated, AtMs: 1_700_000_000_000, Records: 40, LastEpoch: 4,
		}
	}
	dropped := loss("divergent tail", false)
	dropped.DroppedMs = 1_700_000_001_000
	merged := loss("divergent tail", false)
	merged.Merged, merged.LastEpoch, merged.Records = 3, 6, 25
	answer := []Loss{merged, loss("unclean election", true), loss("divergent tail", false), dropped, loss("power cut without log.flush=always", true)}
	var asked private.LossQuery
	conn := privateBroker(t, func(r kmsg.Request) kmsg.Response {
		asked = r.(*private.LossesRequest).Body
		return &private.LossesResponse{Body: private.LossAnswer{Losses: answer}}
	})
	ctx, c := testContext(t), &capture{}
	if err := Losses(ctx, conn, LossesOptions{Topic: "t", Partition: -1}, c.output(false)); err != nil {
		t.Fatal(err)
	}
	if asked.Topic != "t" || asked.Partition != -1 {
		t.Errorf("asked for %+v", asked)
	}
	golden(t, "losses.golden", c.out.String())
	if err := Losses(ctx, conn, LossesOptions{Partition: -1}, c.output(true)); err != nil {
		t.Fatal(err)
	}
	golden(t, "losses_json.golden", c.out.String())
	answer = nil
	if err := Losses(ctx, conn, LossesOptions{Partition: -1}, c.output(false)); err != nil || c.out.String() != "No losses are known.\n" {
		t.Errorf("none: %v, printed %q", err, c.out.String())
	}
}
