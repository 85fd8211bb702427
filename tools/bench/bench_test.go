package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"cairn/tools"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type capture struct{ out, err bytes.Buffer }

func (c *capture) output(asJSON bool) tools.Output {
	return tools.Output{Out: &c.out, Err: &c.err, JSON: asJSON}
}

func cluster(t *testing.T) (*kfake.Cluster, tools.Connection, context.Context) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return c, tools.Connection{Bootstrap: strings.Join(c.ListenAddrs(), ",")}, ctx
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
	}
}

func TestLinesAreThoseOfKafkasTool(t *testing.T) {
	tl := newTally()
	for us := int64(1000); us <= 100_000; us += 1000 {
		if err := tl.latencies.RecordValue(us); err != nil {
			t.Fatal(err)
		}
	}
	tl.bytes = 100 << 20
	w := tl.window(5*time.Second, 10*time.Second)
	golden(t, "lines.golden", strings.Join([]string{w.line(), w.totalLine(""), w.totalLine(" steady state"), ""}, "\n"))
}

func TestPlotShowsTheTimeline(t *testing.T) {
	timeline := []Window{{Second: 1, Rate: 100, P50: 1, P99: 2, P999: 3, Max: 4}, {Second: 2, Rate: 200, P50: 1, P99: 3, P999: 4, Max: 5}}
	for name, magic := range map[string]string{"a.svg": "<?xml", "a.png": "\x89PNG"} {
		path := filepath.Join(t.TempDir(), name)
		if err := plotTimeline(path, "t", timeline); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(text), magic) || len(text) < 1000 {
			t.Errorf("%s has %d bytes, %v", name, len(text), err)
		}
	}
}

func TestProduceReportsWhatWasAcknowledged(t *testing.T) {
	_, conn, ctx := cluster(t)
	o := DefaultProduceOptions()
	o.Topic, o.Records, o.RecordSize, o.Producers, o.Warmup, o.PrintMetrics = "t", 5000, 100, 3, 1000, true
	o.Interval, o.CSV = 20*time.Millisecond, filepath.Join(t.TempDir(), "timeline.csv")
	c := &capture{}
	if err := Produce(ctx, conn, o, c.output(false)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^5000 records sent, [0-9.]+ records/sec \([0-9.]+ MB/sec\), [0-9.]+ ms avg latency, [0-9.]+ ms max latency, [0-9]+ ms 50th, [0-9]+ ms 95th, [0-9]+ ms 99th, [0-9]+ ms 99.9th\.$`,
		`(?m)^4000 steady state records sent, `, `record-send-total +: 5000.000`,
	} {
		if !regexp.MustCompile(want).MatchString(c.out.String()) {
			t.Errorf("no line %s in\n%s", want, c.out.String())
		}
	}
	if want := "5000 sent, 5000 acknowledged, 0 failed, 0 unknown"; !strings.Contains(c.err.String(), want) {
		t.Errorf("verdict %q, want %q", c.err.String(), want)
	}
	if text, err := os.ReadFile(o.CSV); err != nil || !strings.HasPrefix(string(text), "second,records,") {
		t.Errorf("time line %q, %v", text, err)
	}
}

func TestRefusedRecordsAreFailedAndTimedOutOnesUnknown(t *testing.T) {
	for _, tc := range []struct {
		code   *kerr.Error
		failed map[string]int64
	}{{kerr.InvalidRecord, map[string]int64{"INVALID_RECORD": 10}}, {kerr.RequestTimedOut, map[string]int64{}}} {
		c, conn, ctx := cluster(t)
		c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			r := req.(*kmsg.ProduceRequest)
			resp := r.ResponseKind().(*kmsg.ProduceResponse)
			for _, rt := range r.Topics {
				st := kmsg.NewProduceResponseTopic()
				st.Topic, st.TopicID = rt.Topic, rt.TopicID
				for _, rp := range rt.Partitions {
					sp := kmsg.NewProduceResponseTopicPartition()
					sp.Partition, sp.ErrorCode = rp.Partition, tc.code.Code
					st.Partitions = append(st.Partitions, sp)
				}
				resp.Topics = append(resp.Topics, st)
			}
			return resp, nil, true
		})
		conn.Properties = []string{"retries=0"}
		o := DefaultProduceOptions()
		o.Topic, o.Records, o.RecordSize = "t", 10, 10
		out := &capture{}
		if err := Produce(ctx, conn, o, out.output(true)); err == nil {
			t.Error("no error though nothing was acknowledged")
		}
		var res produceResult
		if err := json.Unmarshal(out.out.Bytes(), &res); err != nil {
			t.Fatal(err)
		}
		if got := res.Verdict; !maps.Equal(got.Failed, tc.failed) || sum(got.Failed)+sum(got.Unknown) != 10 {
			t.Errorf("%s: verdict %+v", tc.code.Message, got)
		}
	}
}

func TestOpenLoopChargesAStallToAllRecordsBehindIt(t *testing.T) {
	c, conn, ctx := cluster(t)
	first := true
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		if first {
			first = false
			time.Sleep(300 * time.Millisecond) // the stall of a broker
		}
		return nil, nil, false
	})
	o := DefaultProduceOptions()
	o.Topic, o.Records, o.RecordSize, o.Throughput, o.OpenLoop = "t", 400, 10, 1000, true
	out := &capture{}
	if err := Produce(ctx, conn, o, out.output(true)); err != nil {
		t.Fatal(err)
	}
	var res produceResult
	if err := json.Unmarshal(out.out.Bytes(), &res); err != nil {
		t.Fatal(err)
	}
	if res.Total.Max < 200 || res.Total.P50 < 20 {
		t.Errorf("a stall of 300 ms gave p50 %.1f ms and a maximum of %.1f ms", res.Total.P50, res.Total.Max)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		change func(*ProduceOptions)
		want   string
	}{
		{func(o *ProduceOptions) { o.Records = 0 }, "--num-records 0"},
		{func(o *ProduceOptions) { o.PayloadMonotonic = true }, "say in one way what to send"},
		{func(o *ProduceOptions) { o.Plot = "x.pdf" }, ".svg or .png"},
		{func(o *ProduceOptions) { o.OpenLoop = true }, "--open-loop needs --throughput"},
		{func(o *ProduceOptions) { o.Producers = 0 }, "--producers 0"},
		{func(o *ProduceOptions) { o.Warmup = 10 }, "--warmup-records 10"},
		{func(o *ProduceOptions) { o.Throughput = math.NaN() }, "--throughput NaN"},
	} {
		o := DefaultProduceOptions()
		o.Topic, o.Records, o.RecordSize = "t", 10, 10
		tc.change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
}

func TestOptionsOfOtherMeasurementsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{EndToEndOptions{Records: 0, RecordSize: 1, Acks: "all", Timeout: 1}.Validate(), "--num-records 0"},
		{EndToEndOptions{Records: 1, RecordSize: math.MaxInt, Acks: "all", Timeout: 1}.Validate(), "--record-size 9223372036854775807: want 1 to"},
		{EndToEndOptions{Records: 1, RecordSize: 1, Acks: "0", Timeout: 1}.Validate(), "--producer-acks 0"},
		{EndToEndOptions{Records: 1, RecordSize: 1, Acks: "1"}.Validate(), "--timeout-ms"},
		{VerifyOptions{Messages: 1, Throughput: math.Inf(1), Timeout: 1}.Validate(), "--throughput +Inf"},
		{VerifyOptions{Messages: math.MaxInt64, Timeout: 1}.Validate(), "--max-messages 9223372036854775807: want 1 to"},
		{VerifyOptions{Messages: 1}.Validate(), "--timeout-ms"},
	} {
		if tc.err == nil || !strings.Contains(tc.err.Error(), tc.want) {
			t.Errorf("got %v, want %q", tc.err, tc.want)
		}
	}
	if due := dueAt(1, math.SmallestNonzeroFloat64); due < 24*365*time.Hour {
		t.Errorf("at next to no pace the second record is due after %v", due)
	}
}

// TestFilesAreLookedAtBeforeTheRun: what a long run has measured is not to be lost because it cannot be written.
func TestFilesAreLookedAtBeforeTheRun(t *testing.T) {
	c, conn, ctx := cluster(t)
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		t.Error("a record was sent")
		return nil, nil, false
	})
	o := DefaultProduceOptions()
	o.Topic, o.Records, o.RecordSize = "t", 1, 10
	missing := filepath.Join(t.TempDir(), "missing", "line")
	for _, change := range []func(*ProduceOptions){func(o *ProduceOptions) { o.CSV = missing + ".csv" }, func(o *ProduceOptions) { o.Plot = missing + ".svg" }} {
		with := o
		change(&with)
		if err := Produce(ctx, conn, with, new(capture).output(false)); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), missing) {
			t.Errorf("got %v, want that %s... is not there", err, missing)
		}
	}
}

func TestEndToEndAndConsumeMeasure(t *testing.T) {
	_, conn, ctx := cluster(t)
	e := DefaultEndToEndOptions()
	e.Topic, e.Records = "t", 50
	c := &capture{}
	if err := EndToEnd(ctx, conn, e, c.output(false)); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?s)0\t[0-9.]+\nAvg latency: [0-9.]+ ms\n\nPercentiles: 50th = `).MatchString(c.out.String()) {
		t.Errorf("printed %s", c.out.String())
	}
	o := DefaultConsumeOptions()
	o.Topic, o.Records = "t", 50
	c = &capture{}
	if err := Consume(ctx, conn, o, c.output(false)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(c.out.String()), "\n")
	if len(lines) != 2 || lines[0] != consumeHeader || len(strings.Split(lines[1], ", ")) != 10 {
		t.Errorf("printed %s", c.out.String())
	}
	o.Records, o.Timeout = 1000, 300*time.Millisecond
	if err := Consume(ctx, conn, o, c.output(false)); err == nil || !strings.Contains(err.Error(), " of 1000 records were read") {
		t.Errorf("fewer records than were asked for: %v", err)
	}
	v := DefaultVerifyOptions()
	v.Topic = "nowhere"
	if err := Verify(ctx, conn, v, c.output(false)); err == nil || !strings.Contains(err.Error(), "`cairn topics create --topic nowhere` makes it") {
		t.Errorf("verify of a topic that is not there: %v", err)
	}
}

// TestInterruptedEndToEndTellsWhatItHas: an interrupt is no record that did not come back.
func TestInterruptedEndToEndTellsWhatItHas(t *testing.T) {
	_, conn, ctx := cluster(t)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := DefaultEndToEndOptions()
	o.Topic, o.Records = "t", math.MaxInt64
	c := &capture{}
	out := c.output(false)
	out.Out = cancelAt{&c.out, "0\t", cancel}
	err := EndToEnd(ctx, conn, o, out)
	if err == nil || !strings.Contains(err.Error(), "interrupted") || strings.Contains(err.Error(), "come back") || !strings.Contains(c.out.String(), "Percentiles: ") {
		t.Errorf("%v, printed %s", err, c.out.String())
	}
}

// cancelAt cancels when a line that begins so is written.
type cancelAt struct {
	*bytes.Buffer
	prefix string
	cancel func()
}

func (c cancelAt) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte(c.prefix)) {
		c.cancel()
	}
	return c.Buffer.Write(p)
}

func TestVerifyFindsWhatIsLostAndWhatIsThereTwice(t *testing.T) {
	_, conn, ctx := cluster(t)
	o := DefaultVerifyOptions()
	o.Topic, o.Messages = "t", 2000
	c := &capture{}
	if err := Verify(ctx, conn, o, c.output(false)); err != nil {
		t.Fatal(err)
	}
	if want := "2000 read: 0 lost, 0 duplicated, 0 reordered, 0 unexpected"; !strings.Contains(c.out.String(), want) {
		t.Errorf("printed %s, want %s", c.out.String(), want)
	}
	v := &verification{opts: VerifyOptions{Messages: 6}, prefix: "p", outcomes: newOutcomes(false), seen: make([]uint8, 6), out: c.output(true)}
	v.fates = []fate{acknowledged, acknowledged, acknowledged, acknowledged, refusedFate, undecided}
	newest := map[int32]int64{}
	for i, value := range []string{"p.0", "p.2", "p.1", "p.1", "p.4", "q.3", "p.x", "p.99"} {
		v.note(&kgo.Record{Topic: "t", Offset: int64(i), Value: []byte(value)}, newest)
	}
	v.compare()
	if r := v.result; r.Lost != 1 || r.Duplicated != 1 || r.Reordered != 1 || r.Unexpected != 1 || r.Read != 5 {
		t.Errorf("result %+v", r)
	}
	if err := v.report(true); err == nil {
		t.Error("no error for a lost record")
	}
}

func TestPayloadFileIsSplit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "values")
	if err := os.WriteFile(path, []byte("one|three||"), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := ProduceOptions{PayloadFile: path, PayloadDelimiter: "|"}.payload(1)
	if err != nil || p.max != 5 {
		t.Fatalf("largest value %d, %v", p.max, err)
	}
	seen := map[string]bool{}
	for i := range int64(100) {
		seen[string(p.next(i))] = true
	}
	if len(seen) != 2 || !seen["one"] || !seen["three"] {
		t.Errorf("values %v", seen)
	}
	if _, err := (ProduceOptions{PayloadFile: path + "x", PayloadDelimiter: "|"}).payload(1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}
