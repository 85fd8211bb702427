package tools

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parseTopicPartitions reads t, or t:0,1. No partitions: all.
func parseTopicPartitions(text string) (topic string, partitions []int32, err error) {
	topic, rest, some := strings.Cut(text, ":")
	if topic == "" {
		return "", nil, fmt.Errorf("--topic %q: want NAME or NAME:PARTITION,PARTITION", text)
	}
	if !some {
		return topic, nil, nil
	}
	for _, s := range strings.Split(rest, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32)
		if err != nil || n < 0 {
			return "", nil, fmt.Errorf("--topic %q: %q is no partition; want NAME:PARTITION,PARTITION", text, s)
		}
		partitions = append(partitions, int32(n))
	}
	slices.Sort(partitions)
	return topic, slices.Compact(partitions), nil
}

// parseDatetime reads Kafka's YYYY-MM-DDThh:mm:ss.sss, given for an option; without a zone it is UTC.
func parseDatetime(option, text string) (time.Time, error) {
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05Z07", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s %q: want YYYY-MM-DDThh:mm:ss.sss, with a zone such as Z or +02:00, or in UTC", option, text)
}

// period is Java's text form of a duration.
var period = regexp.MustCompile(`^(?i)([-+]?)P(?:([-+]?\d+)D)?(?:T(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?(?:([-+]?\d+(?:[.,]\d{1,9})?)S)?)?$`)

// parsePeriod reads PnDTnHnMnS.
func parsePeriod(text string) (time.Duration, error) {
	bad := fmt.Errorf("--by-duration %q: want PnDTnHnMnS, for example P1DT2H or PT30M", text)
	m := period.FindStringSubmatch(text)
	if m == nil || m[2]+m[3]+m[4]+m[5] == "" {
		return 0, bad
	}
	var total float64
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		if m[i+2] == "" {
			continue
		}
		n, err := strconv.ParseFloat(strings.Replace(m[i+2], ",", ".", 1), 64)
		if err != nil {
			return 0, bad
		}
		total += n * float64(unit)
	}
	if m[1] == "-" {
		total = -total
	}
	if total > 1<<62 || total < -(1<<62) {
		return 0, bad
	}
	return time.Duration(total), nil
}

// readOffsetsFile reads CSV lines topic,partition,offset, or group,topic,partition,offset, of which those of the group count.
// The short form is for a single group.
func readOffsetsFile(path, group string, single bool) (map[topicPartition]int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	r := csv.NewReader(f)
	r.FieldsPerRecord, r.TrimLeadingSpace = -1, true
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	offsets := map[topicPartition]int64{}
	for i, row := range rows {
		if len(row) == 4 {
			if row[0] != group {
				continue
			}
			row = row[1:]
		} else if len(row) == 3 && !single {
			return nil, fmt.Errorf("%s: line %d names no group; want group,topic,partition,offset where several are reset", path, i+1)
		}
		tp, offset, err := readOffsetsRow(row)
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, i+1, err)
		}
		if _, ok := offsets[tp]; ok {
			return nil, fmt.Errorf("%s: line %d: %s is there twice", path, i+1, tp)
		}
		offsets[tp] = offset
	}
	if len(offsets) == 0 {
		return nil, fmt.Errorf("%s has no offset of group '%s'", path, group)
	}
	return offsets, nil
}

func readOffsetsRow(row []string) (topicPartition, int64, error) {
	if len(row) != 3 {
		return topicPartition{}, 0, errors.New("want topic,partition,offset or group,topic,partition,offset")
	}
	partition, err := strconv.ParseInt(strings.TrimSpace(row[1]), 10, 32)
	if err != nil || partition < 0 {
		return topicPartition{}, 0, fmt.Errorf("%q is no partition", row[1])
	}
	offset, err := strconv.ParseInt(strings.TrimSpace(row[2]), 10, 64)
	if err != nil || offset < 0 {
		return topicPartition{}, 0, fmt.Errorf("%q is no offset", row[2])
	}
	return topicPartition{row[0], int32(partition)}, offset, nil
}
