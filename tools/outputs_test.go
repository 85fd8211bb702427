package tools

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// volatile is what differs from run to run: topic ids and times.
var volatile = []struct {
	pattern *regexp.Regexp
	becomes string
}{
	{regexp.MustCompile(`TopicId: [\w-]{22}`), "TopicId: ID"},
	{regexp.MustCompile(`"topicId":"[\w-]{22}"`), `"topicId":"ID"`},
	{regexp.MustCompile(`"timestamp":\d{13}`), `"timestamp":TIME`},
	{regexp.MustCompile(`CreateTime:\d{13}`), "CreateTime:TIME"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "HOST:PORT"},
}

// TestOutputsGolden: what the commands about topics and records print, for people and for programs.
func TestOutputsGolden(t *testing.T) {
	_, conn := fakeCluster(t, kfake.NumBrokers(1))
	input := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(input, []byte("k1:one\nk2:two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	produce, consume := DefaultProduceOptions(), DefaultConsumeOptions()
	produce.Topic, produce.File, produce.Sync = "words", input, true
	produce.ReaderProperties = []string{"parse.key=true", "key.separator=:"}
	consume.Topic, consume.FromBeginning, consume.MaxMessages = "words", true, 2
	consume.FormatterProperties = []string{"print.key=true", "print.partition=true", "print.offset=true", "print.headers=true"}
	sel := TopicSelection{Topic: "words"}
	type step struct {
		name string
		do   func(ctx context.Context, out Output) error
	}
	var all strings.Builder
	for _, asJSON := range []bool{false, true} {
		for _, s := range []step{
			{"topics create", func(ctx context.Context, out Output) error {
				return CreateTopic(ctx, conn, CreateTopicOptions{Topic: "words", Partitions: 1, ReplicationFactor: 1, Configs: []string{"retention.ms=1000"}}, out)
			}},
			{"topics list", func(ctx context.Context, out Output) error { return ListTopics(ctx, conn, TopicSelection{}, out) }},
			{"topics describe", func(ctx context.Context, out Output) error {
				return DescribeTopics(ctx, conn, DescribeTopicsOptions{TopicSelection: sel}, out)
			}},
			{"produce", func(ctx context.Context, out Output) error { return Produce(ctx, conn, produce, out) }},
			{"consume", func(ctx context.Context, out Output) error { return Consume(ctx, conn, consume, out) }},
			{"get-offsets", func(ctx context.Context, out Output) error {
				return GetOffsets(ctx, conn, GetOffsetsOptions{Topic: "words"}, out)
			}},
			{"topics delete", func(ctx context.Context, out Output) error { return DeleteTopics(ctx, conn, sel, out) }},
			{"topics delete, once more", func(ctx context.Context, out Output) error { return DeleteTopics(ctx, conn, sel, out) }},
		} {
			c := &capture{}
			err := s.do(testContext(t), c.output(asJSON))
			fmt.Fprintf(&all, "== %s, JSON: %v\n%s%s", s.name, asJSON, c.out.String(), c.err.String())
			if err != nil {
				fmt.Fprintf(&all, "error: %v\n", err)
			}
		}
	}
	text := all.String()
	for _, v := range volatile {
		text = v.pattern.ReplaceAllString(text, v.becomes)
	}
	golden(t, "outputs.golden", text)
}
