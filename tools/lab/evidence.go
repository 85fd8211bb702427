package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// dumpedBatch is what is needed of a line of `cairn dump --json`.
type dumpedBatch struct {
	BaseOffset int64
	IsValid    bool
	Records    []struct {
		Offset int64
		Value  []byte
	}
}

// dump returns the values of the records that a stopped broker has stored of the first partition of a topic. more are flags.
func (w *world) dump(ctx context.Context, id int, topic string, more ...string) ([]string, error) {
	n := w.node(id)
	if n.Running() {
		return nil, fmt.Errorf("broker %d runs, so its data cannot be read", id)
	}
	args := append([]string{"dump", "--data-dir", n.DataDir(), "--topic", topic, "--partition", "0", "--print-data-log", "--json"}, more...)
	out, err := w.cairn(ctx, args...)
	if err != nil {
		return nil, err
	}
	return dumpedValues(out)
}

// dumpedValues reads the lines of a dump.
func dumpedValues(out string) ([]string, error) {
	var values []string
	dec := json.NewDecoder(strings.NewReader(out))
	for {
		var b dumpedBatch
		if err := dec.Decode(&b); errors.Is(err, io.EOF) {
			return values, nil
		} else if err != nil {
			return values, fmt.Errorf("reading the dump: %w", err)
		}
		if !b.IsValid {
			return values, differs("the batch at offset %d is damaged", b.BaseOffset)
		}
		for _, r := range b.Records {
			values = append(values, string(r.Value))
		}
	}
}

// lostRange is a range of offsets, the end exclusive, that one leader epoch wrote.
type lostRange struct {
	LeaderEpoch int32
	From, To    int64
}

// electionPreview is what is needed of `cairn elect --dry-run --json`.
type electionPreview struct {
	Topic     string
	Partition int32
	Replicas  []struct {
		Broker    int32
		Alive     bool
		LogEnd    int64 `json:"logEndOffset"`
		AgeMs     int64
		WouldLose []lostRange
	}
}

// reportedLoss is what is needed of a line of `cairn losses --json`.
type reportedLoss struct {
	Topic       string
	Partition   int32
	LeaderEpoch int32
	From, To    int64
	Cause       string
	Broker      int32
}

// oneArray decodes the only JSON value of a command's output. Keys match in any case.
func oneArray[T any](out string) ([]T, error) {
	var list []T
	if err := json.NewDecoder(bytes.NewReader([]byte(out))).Decode(&list); err != nil {
		return nil, fmt.Errorf("output is no JSON array: %w: %q", err, out)
	}
	return list, nil
}

// covers reports whether the ranges together are just [0, n).
func covers(ranges []lostRange, n int64) bool {
	sorted := slices.SortedFunc(slices.Values(ranges), func(a, b lostRange) int { return int(a.From - b.From) })
	next := int64(0)
	for _, r := range sorted {
		if r.From != next && r.From != 0 || r.To <= r.From {
			return false
		}
		next = max(next, r.To)
	}
	return next == n
}

// rangesText lists ranges as offsets, both ends inclusive.
func rangesText(ranges []lostRange) string {
	if len(ranges) == 0 {
		return "none"
	}
	var s []string
	for _, r := range ranges {
		s = append(s, fmt.Sprintf("%d..%d of leader epoch %d", r.From, r.To-1, r.LeaderEpoch))
	}
	return strings.Join(s, ", ")
}
