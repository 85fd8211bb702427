package clientconfig

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestProducerFollowsKafkasRules(t *testing.T) {
	for _, tc := range []struct {
		given      string
		err        string // part of the error; empty: none
		idempotent bool
		printed    string // a line of Print
	}{
		{given: "", idempotent: true, printed: "delivery.timeout.ms = 120000"},
		{given: "acks=1", printed: "enable.idempotence = false"},
		{given: "retries=0", printed: "enable.idempotence = false"},
		{given: "acks=1 enable.idempotence=true", err: "acks=all"},
		{given: "retries=0 enable.idempotence=true", err: "needs retries"},
		{given: "max.in.flight.requests.per.connection=6", err: "at most 5"},
		{given: "max.in.flight.requests.per.connection=6 enable.idempotence=false", printed: "max.in.flight.requests.per.connection = 6"},
		{given: "transactional.id=x acks=1", err: "transactional.id=x needs an idempotent producer"},
		{given: "delivery.timeout.ms=1000", err: "at least linger.ms + request.timeout.ms = 30005"},
		{given: "request.timeout.ms=200000", idempotent: true, printed: "delivery.timeout.ms = 200005"},
		{given: "acks=2", err: "want one of all, -1, 0, 1"},
		{given: "batch.size=many linger.ms=-1", err: "linger.ms=-1"},
		{given: "security.protocol=SSL", err: "only PLAINTEXT"},
	} {
		p, err := ParseProducer(props(tc.given))
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: got %v, want %q", tc.given, err, tc.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.given, err)
			continue
		}
		var text strings.Builder
		if err := p.Print(&text); err != nil {
			t.Fatal(err)
		}
		if p.Idempotent != tc.idempotent || !strings.Contains(text.String(), tc.printed+"\n") {
			t.Errorf("%s: idempotent %v, printed\n%s", tc.given, p.Idempotent, &text)
		}
		if _, err := kgo.NewClient(p.Options(100)...); err != nil {
			t.Errorf("%s: options: %v", tc.given, err)
		}
	}
}

func props(text string) map[string]string {
	m := map[string]string{}
	for _, pair := range strings.Fields(text) {
		name, value, _ := strings.Cut(pair, "=")
		m[name] = value
	}
	return m
}

func TestDefaultsAreKafkas(t *testing.T) {
	p, err := ParseProducer(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseConsumer(nil)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := p.Print(&text); err != nil {
		t.Fatal(err)
	}
	if err := c.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"acks = all", "enable.idempotence = true", "retries = 2147483647", "delivery.timeout.ms = 120000", "request.timeout.ms = 30000",
		"max.in.flight.requests.per.connection = 5", "linger.ms = 5", "batch.size = 16384", "enable.auto.commit = true", "auto.commit.interval.ms = 5000",
		"max.poll.records = 500", "isolation.level = read_uncommitted", "group.protocol = classic", "session.timeout.ms = 45000", "auto.offset.reset = latest",
	} {
		if !strings.Contains(text.String(), line+"\n") {
			t.Errorf("no %q in\n%s", line, &text)
		}
	}
}

func TestConsumerIsChecked(t *testing.T) {
	for given, want := range map[string]string{
		"session.timeout.ms=1000":                     "must be below session.timeout.ms=1000",
		"partition.assignment.strategy=best":          "want some of range",
		"group.protocol=consumer":                     "classic protocol",
		"auto.offset.reset=middle":                    "want one of latest",
		"isolation.level=read_all max.poll.records=0": "max.poll.records=0",
	} {
		if _, err := ParseConsumer(props(given)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", given, err, want)
		}
	}
	c, err := ParseConsumer(props("group.id=g partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor enable.auto.commit=false group.instance.id=i"))
	if err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(append(append(c.FetchOptions(), c.GroupOptions()...), kgo.ConsumeTopics("t"))...)
	if err != nil {
		t.Fatal(err)
	}
	cl.Close()
}

func TestWarningsNameWhatHasNoEffect(t *testing.T) {
	p, err := ParseProducer(props("send.buffer.bytes=1 lingr.ms=1 max.in.flight.requests.per.connection=1"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(p.Warnings(), "\n")
	for _, want := range []string{"send.buffer.bytes has no effect", "did you mean linger.ms?", "always 5"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}
