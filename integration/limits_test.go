package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"cairn/tools/bench"
)

// limitRun is one run of `cairn bench produce` on a partition that refuses, and how it ended.
type limitRun struct {
	records int
	args    string
	code    int
	took    time.Duration
	err     error
	result  struct{ Verdict bench.Verdict }
}

func (r *limitRun) play(binary, at string) {
	args := append(strings.Fields("bench produce --topic refusing --json --record-size 10 --num-records "+fmt.Sprint(r.records)+" "+r.args), at)
	begun := time.Now()
	out, err := exec.Command(binary, args...).Output()
	r.took = time.Since(begun)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		r.code, err = exit.ExitCode(), nil
	}
	r.err = errors.Join(err, json.Unmarshal(out, &r.result))
}

// TestRetriesAndTimeLimits: on a partition that refuses acks=all the number of retries decides when it is small, else the time limit, which belongs
// to the batch: the rows of Kafka's producer, for cairn bench produce.
func TestRetriesAndTimeLimits(t *testing.T) {
	t.Parallel()
	limit := 2 * time.Second
	if long() {
		limit = 5 * time.Second
	}
	c := three(t, quick())
	at := "--bootstrap-server=" + strings.Join(c.Bootstrap()[:1], ",")
	cairn(t, "", "topics", "create", at, "--topic", "refusing", "--replica-assignment", "1:3", "--config", "min.insync.replicas=2")
	must(t, c.Node(3).Kill())
	until(t, "broker 3 has left the ISR", func() bool { return len(describe(t, at, "refusing").ISR) == 1 })
	const property = " --command-property "
	patient := fmt.Sprintf("--command-property delivery.timeout.ms=%d --command-property request.timeout.ms=1000 --command-property retry.backoff.max.ms=100", limit.Milliseconds())
	none := &limitRun{records: 1, args: "--sync --command-property retries=0"}
	few := &limitRun{records: 1, args: "--sync --command-property retries=3 --command-property retry.backoff.ms=600 --command-property retry.backoff.max.ms=600"}
	each := &limitRun{records: 3, args: "--sync " + patient}
	batch := &limitRun{records: 10, args: patient + property + "linger.ms=100"}
	var running sync.WaitGroup
	for _, r := range []*limitRun{none, few, each, batch} {
		running.Go(func() { r.play(cairnBinary(t), at) })
	}
	running.Wait()
	for name, r := range map[string]*limitRun{"no retries": none, "three retries": few, "time limit": each, "time limit of a batch": batch} {
		t.Logf("%s: %d records, %v, %+v", name, r.records, r.took.Round(time.Millisecond), r.result.Verdict)
		v := r.result.Verdict
		if r.err != nil || r.code != 1 || v.Sent != int64(r.records) || v.Acknowledged != 0 {
			t.Errorf("%s: exit code %d, %+v, %v", name, r.code, v, r.err)
		}
	}
	if none.took >= few.took || few.took >= each.took {
		t.Errorf("no retries took %v, three %v, the time limit %v", none.took, few.took, each.took)
	}
	const slack = 3 * time.Second // for the start of the process, the last back-off, and a busy machine
	if least := 3 * limit * 9 / 10; each.took < least || each.took > 3*limit+slack {
		t.Errorf("three records, one after the other, took %v with a limit of %v", each.took, limit)
	}
	if least := limit * 9 / 10; batch.took < least || batch.took > limit+slack {
		t.Errorf("the records of a batch took %v with a limit of %v", batch.took, limit)
	}
	if v := batch.result.Verdict; len(v.Failed)+len(v.Unknown) != 1 {
		t.Errorf("the records of a batch ended differently: %+v", v)
	}
	if got := cairn(t, "", "get-offsets", at, "--topic", "refusing"); got != "refusing:0:0\n" {
		t.Errorf("appended were %s", got)
	}
}
