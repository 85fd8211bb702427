package tools

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"
)

// checkInclude refuses a pattern that is none, or beside what names one topic or partition.
func (o ConsumeOptions) checkInclude() error {
	switch {
	case o.Include == "":
		return nil
	case o.Topic != "":
		return errors.New("--topic and --include exclude each other")
	case o.Partition >= 0:
		return errors.New("--partition needs --topic, and no --include")
	}
	_, err := wholeNames("--include", o.Include)
	return err
}

// included are the client options for the topics that match; none without a pattern.
func (o ConsumeOptions) included() []kgo.Opt {
	if o.Include == "" {
		return nil
	}
	return []kgo.Opt{kgo.ConsumeRegex(), kgo.ConsumeTopics("^(?:" + o.Include + ")$")}
}

// takes says whether a partition is read.
func (o ConsumeOptions) takes(topic string, partition int32) bool {
	if o.Include != "" {
		re, err := wholeNames("--include", o.Include)
		return err == nil && re.MatchString(topic)
	}
	return topic == o.Topic && (o.Partition < 0 || o.Partition == partition)
}
