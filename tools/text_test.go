package tools

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestRefusedConfigsSayWhereToLook(t *testing.T) {
	orders, message := ConfigEntity{Type: topicEntities, Name: "orders"}, "Unknown topic config name: x"
	for want, err := range map[string]error{
		"config for topic orders: topic 'orders' does not exist; `cairn topics list` shows what does": brokerError(kerr.UnknownTopicOrPartition.Code, nil),
		"INVALID_CONFIG: Unknown topic config name: x; `cairn configs describe --topic orders --all`": brokerError(kerr.InvalidConfig.Code, &message),
		"config for topic orders: POLICY_VIOLATION":                                                   brokerError(kerr.PolicyViolation.Code, nil),
	} {
		if got := orders.refused(err).Error(); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestLineReader(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		props    []string
		want     string // KEY|VALUE|headers of each record, or the error
	}{
		{"lines", "a\n\nb", nil, `nil|"a"|[] nil|""|[] nil|"b"|[]`},
		{"carriage return is content", "a\r\n", nil, `nil|"a\r"|[]`},
		{"empty input", "", nil, ``},
		{"keys", "k\tv\nk2\tv\t2\n", []string{"parse.key=true"}, `"k"|"v"|[] "k2"|"v\t2"|[]`},
		{"key separator", "k:v\n", []string{"parse.key=true", "key.separator=:"}, `"k"|"v"|[]`},
		{"no separator", "kv\n", []string{"parse.key=true"}, `line 1: no key separator "\t" found`},
		{"no separator, ignored", "kv\n", []string{"parse.key=true", "ignore.error=true"}, `nil|"kv"|[]`},
		{"headers and key", "a:1,b:2\tk\tv\n", []string{"parse.key=true", "parse.headers=true"}, `"k"|"v"|[a="1" b="2"]`},
		{"header without value", "a\tv\n", []string{"parse.headers=true"}, `line 1: header "a" has no ":"`},
		{"null marker", "N\tN\tN\na:N\tk\tN\n", []string{"parse.key=true", "parse.headers=true", "null.marker=N"}, `nil|nil|[] "k"|nil|[a=nil]`},
		{"escaped separator", "k\x01v\n", []string{"parse.key=true", `key.separator=\x01`}, `"k"|"v"|[]`},
	} {
		props, err := parseReaderProperties(tc.props)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		r := newLineReader(strings.NewReader(tc.in), props)
		var got []string
		for {
			rec, err := r.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				got = []string{err.Error()}
				break
			}
			got = append(got, showRecord(rec))
		}
		if s := strings.Join(got, " "); s != tc.want && !(strings.HasPrefix(tc.want, "line") && strings.HasPrefix(s, tc.want)) {
			t.Errorf("%s: got %s, want %s", tc.name, s, tc.want)
		}
	}
}

func showRecord(r *kgo.Record) string {
	show := func(b []byte) string {
		if b == nil {
			return "nil"
		}
		return fmt.Sprintf("%q", b)
	}
	var hs []string
	for _, h := range r.Headers {
		hs = append(hs, h.Key+"="+show(h.Value))
	}
	return show(r.Key) + "|" + show(r.Value) + "|[" + strings.Join(hs, " ") + "]"
}

func TestReaderPropertiesRefuseContradictions(t *testing.T) {
	for _, bad := range []string{
		"nonsense=1", "parse.key=maybe", "key.separator=", "parse.key", "parse.headers=true headers.delimiter=,",
		"parse.headers=true headers.key.separator=,", "null.marker=:",
	} {
		if p, err := parseReaderProperties(strings.Fields(bad)); err == nil {
			t.Errorf("%s taken as %+v", bad, p)
		}
	}
}

func TestFormatter(t *testing.T) {
	rec := &kgo.Record{
		Topic: "t", Partition: 2, Offset: 7, LeaderEpoch: 3, Timestamp: time.UnixMilli(1234), Key: []byte("k"), Value: []byte("v"),
		Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "b"}},
	}
	all := []string{"print.timestamp=true", "print.partition=true", "print.offset=true", "print.epoch=true", "print.headers=true", "print.key=true"}
	for _, tc := range []struct {
		props []string
		rec   *kgo.Record
		want  string
	}{
		{nil, rec, "v\n"},
		{all, rec, "CreateTime:1234\tPartition:2\tOffset:7\tEpoch:3\ta:1,b:null\tk\tv\n"},
		{[]string{"print.key=true", "print.headers=true"}, &kgo.Record{}, "NO_HEADERS\tnull\tnull\n"},
		{[]string{"print.key=true", "print.value=false", "line.separator=;"}, rec, "k;"},
		{[]string{"print.key=true", "key.separator= = "}, rec, "k = v\n"},
	} {
		p, err := parseFormatterProperties(tc.props)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.text(nil, tc.rec)
		if err != nil || string(got) != tc.want {
			t.Errorf("%v: %q, %v; want %q", tc.props, got, err, tc.want)
		}
	}
}

func TestClientProperties(t *testing.T) {
	file := filepath.Join(t.TempDir(), "client.properties")
	if err := os.WriteFile(file, []byte("acks=all\nenable.idempotence=true\nkey.serializer=x\nlinger.ms=7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	props, err := Connection{CommandConfig: file, Properties: []string{"linger.ms=9"}}.properties()
	if err != nil || props["linger.ms"] != "9" {
		t.Fatalf("%v, %v", props, err)
	}
	opts, ignored, err := clientOptions(props)
	if err != nil || len(opts) != 2 || fmt.Sprint(ignored) != "[key.serializer]" {
		t.Errorf("%d options, ignored %v, %v", len(opts), ignored, err)
	}
	for _, bad := range []map[string]string{
		{"acks": "1", "enable.idempotence": "true"},
		{"acks": "2"},
		{"linger.ms": "x"},
		{"security.protocol": "SSL"},
		{"compression.type": "rar"},
		{"retries": "-1"},
		{"isolation.level": "x"},
	} {
		if _, _, err := clientOptions(bad); err == nil {
			t.Errorf("%v taken", bad)
		}
	}
}

// TestJSONInputRefusesOtherObjects: an object of another program would become a record without key and value.
func TestJSONInputRefusesOtherObjects(t *testing.T) {
	if rec, err := newJSONReader(strings.NewReader(`{"name":"x"}`)).next(); err == nil || !strings.Contains(err.Error(), "record 1") {
		t.Errorf("record %+v, error %v", rec, err)
	}
}
