package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// LogDirsOptions says whose directories to describe, and what in them.
type LogDirsOptions struct {
	Brokers []int32  // empty: all
	Topics  []string // empty: all
}

// logDirs is the JSON that Kafka's tool prints.
type logDirs struct {
	Brokers []brokerDirs `json:"brokers"`
	Version int          `json:"version"`
}

type brokerDirs struct {
	Broker  int32          `json:"broker"`
	LogDirs []describedDir `json:"logDirs"`
}

type describedDir struct {
	Partitions []replicaSize `json:"partitions"`
	Error      *string       `json:"error"`
	LogDir     string        `json:"logDir"`
}

type replicaSize struct {
	Partition string `json:"partition"` // topic-partition
	Size      int64  `json:"size"`
	OffsetLag int64  `json:"offsetLag"`
	IsFuture  bool   `json:"isFuture"`
}

// LogDirs prints how large the replicas on brokers are.
func LogDirs(ctx context.Context, conn Connection, o LogDirsOptions, out Output) error {
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		live, err := brokerAddresses(ctx, cl)
		if err != nil {
			return err
		}
		ids := o.Brokers
		for id := range live {
			if len(o.Brokers) == 0 {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		for _, id := range ids {
			if _, ok := live[id]; !ok {
				return fmt.Errorf("broker %d is not there, or fenced; live are %s", id, joinIDs(sortedIDs(live), ""))
			}
		}
		all := logDirs{Brokers: []brokerDirs{}, Version: 1}
		for _, id := range ids {
			// nil asks for all: topics are picked here, since only the broker knows its partitions.
			resp, err := kmsg.NewPtrDescribeLogDirsRequest().RequestWith(ctx, cl.Broker(int(id)))
			if err != nil {
				return fmt.Errorf("broker %d: %w", id, err)
			}
			if err := brokerError(resp.ErrorCode, nil); err != nil {
				return fmt.Errorf("broker %d: %w", id, err)
			}
			all.Brokers = append(all.Brokers, brokerDirs{id, o.dirs(resp)})
		}
		if !out.JSON {
			if _, err := fmt.Fprintf(out.Out, "Querying brokers for log directories information\nReceived log directory information from brokers %s\n", joinIDs(ids, "")); err != nil {
				return err
			}
		}
		return out.writeJSON(all)
	})
}

func sortedIDs(m map[int32]string) []int32 {
	var ids []int32
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (o LogDirsOptions) dirs(resp *kmsg.DescribeLogDirsResponse) []describedDir {
	dirs := []describedDir{}
	for _, d := range resp.Dirs {
		dir := describedDir{Partitions: []replicaSize{}, LogDir: d.Dir}
		if d.ErrorCode != 0 {
			text := exception(d.ErrorCode, "")
			dir.Error = &text
		}
		slices.SortFunc(d.Topics, func(a, b kmsg.DescribeLogDirsResponseDirTopic) int { return strings.Compare(a.Topic, b.Topic) })
		for _, t := range d.Topics {
			if len(o.Topics) > 0 && !slices.Contains(o.Topics, t.Topic) {
				continue
			}
			slices.SortFunc(t.Partitions, func(a, b kmsg.DescribeLogDirsResponseDirTopicPartition) int {
				return cmp.Compare(a.Partition, b.Partition)
			})
			for _, p := range t.Partitions {
				dir.Partitions = append(dir.Partitions, replicaSize{fmt.Sprintf("%s-%d", t.Topic, p.Partition), p.Size, p.OffsetLag, p.IsFuture})
			}
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// ParseIDs reads ids of brokers, or numbers of partitions, separated by commas.
func ParseIDs(text string) ([]int32, error) {
	var list []int32
	for _, part := range strings.Split(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(part), 10, 32)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q: want numbers from 0 on, separated by commas", part)
		}
		if slices.Contains(list, int32(n)) {
			return nil, fmt.Errorf("%d is there twice", n)
		}
		list = append(list, int32(n))
	}
	if len(list) == 0 {
		return nil, errors.New("want numbers from 0 on, separated by commas")
	}
	return list, nil
}
