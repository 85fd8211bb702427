package tools

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// partitionPattern picks partitions of the topics whose whole names match.
type partitionPattern struct {
	topic *regexp.Regexp
	has   func(partition int32) bool
}

// partitionPatterns pick what one of them picks.
type partitionPatterns []partitionPattern

func (l partitionPatterns) has(topic string, partition int32) bool {
	return slices.ContainsFunc(l, func(p partitionPattern) bool { return p.topic.MatchString(topic) && p.has(partition) })
}

// wanted reads the options, which say in one of two ways which partitions are meant.
func (o GetOffsetsOptions) wanted() (partitionPatterns, error) {
	if o.TopicPartitions == "" {
		p, err := wholeNames("--topic", o.Topic)
		has := func(n int32) bool { return len(o.Partitions) == 0 || slices.Contains(o.Partitions, n) }
		return partitionPatterns{{p, has}}, err
	}
	if o.Topic != "" || len(o.Partitions) > 0 {
		return nil, errors.New("--topic-partitions excludes --topic and --partitions")
	}
	var list partitionPatterns
	for _, text := range strings.Split(o.TopicPartitions, ",") {
		topic, partitions, _ := strings.Cut(text, ":")
		re, err := wholeNames("--topic-partitions", topic)
		if err != nil {
			return nil, err
		}
		from, to, err := partitionRange(partitions)
		if err != nil {
			return nil, fmt.Errorf("--topic-partitions %s: %w", text, err)
		}
		list = append(list, partitionPattern{re, func(n int32) bool { return int64(n) >= from && int64(n) < to }})
	}
	return list, nil
}

// wholeNames is a regular expression for whole names; an empty one matches all.
func wholeNames(flag, pattern string) (*regexp.Regexp, error) {
	if pattern == "" {
		pattern = ".*"
	}
	re, err := regexp.Compile("^(?:" + pattern + ")$")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return re, nil
}

// partitionRange reads N, FROM-TO, FROM- or -TO, where TO is exclusive; nothing stands for all.
func partitionRange(text string) (from, to int64, err error) {
	if text == "" {
		return 0, math.MaxInt64, nil
	}
	low, high, isRange := strings.Cut(text, "-")
	to = math.MaxInt64
	for _, part := range []struct {
		text string
		n    *int64
	}{{low, &from}, {high, &to}} {
		if part.text == "" {
			continue
		}
		n, err := strconv.ParseInt(part.text, 10, 32)
		if err != nil || n < 0 {
			return 0, 0, errors.New("want a partition N, or a range FROM-TO, of which TO is not part")
		}
		*part.n = n
	}
	if !isRange {
		to = from + 1
	}
	return from, to, nil
}
