package tools

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// QuorumOptions says what to print about the metadata log: its status, or each of its replicas.
type QuorumOptions struct {
	Replication   bool
	HumanReadable bool // times as how long ago they were
}

// quorumStatus is the JSON form.
type quorumStatus struct {
	ClusterID     string          `json:"clusterId"`
	LeaderID      int32           `json:"leaderId"`
	LeaderEpoch   int32           `json:"leaderEpoch"`
	HighWatermark int64           `json:"highWatermark"`
	Replicas      []quorumReplica `json:"replicas"`
}

// quorumReplica is one replica of the metadata log; times are ms, -1 where they are not known.
type quorumReplica struct {
	NodeID       int32    `json:"nodeId"`
	DirectoryID  string   `json:"directoryId"`
	Endpoints    []string `json:"endpoints,omitempty"`
	LogEndOffset int64    `json:"logEndOffset"`
	Lag          int64    `json:"lag"`
	LastFetch    int64    `json:"lastFetchTimestamp"`
	LastCaughtUp int64    `json:"lastCaughtUpTimestamp"`
	Status       string   `json:"status"` // Leader, Follower or Observer
}

// DescribeQuorum prints what the active controller tells about the metadata log.
func DescribeQuorum(ctx context.Context, conn Connection, o QuorumOptions, out Output) error {
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		q, err := askQuorum(ctx, cl)
		if err != nil {
			return err
		}
		if out.JSON {
			return out.writeJSON(q)
		}
		text := q.status()
		if o.Replication {
			text = q.table(o.HumanReadable, time.Now())
		}
		_, err = out.Out.Write([]byte(text))
		return err
	})
}

func askQuorum(ctx context.Context, cl *kgo.Client) (quorumStatus, error) {
	var q quorumStatus
	meta := kmsg.NewPtrMetadataRequest()
	meta.Topics = []kmsg.MetadataRequestTopic{}
	about, err := meta.RequestWith(ctx, cl)
	if err != nil {
		return q, err
	}
	req := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic, t.Partitions = "__cluster_metadata", []kmsg.DescribeQuorumRequestTopicPartition{kmsg.NewDescribeQuorumRequestTopicPartition()}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return q, err
	}
	if err := brokerError(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return q, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return q, fmt.Errorf("the answer is about %d topics, not about the metadata log", len(resp.Topics))
	}
	p := resp.Topics[0].Partitions[0]
	if err := brokerError(p.ErrorCode, p.ErrorMessage); err != nil {
		return q, err
	}
	q = quorumStatus{ClusterID: deref(about.ClusterID), LeaderID: p.LeaderID, LeaderEpoch: p.LeaderEpoch, HighWatermark: p.HighWatermark}
	q.add(p.CurrentVoters, "Follower", resp.Nodes)
	q.add(p.Observers, "Observer", nil)
	leader := slices.IndexFunc(q.Replicas, func(r quorumReplica) bool { return r.NodeID == q.LeaderID })
	for i := range q.Replicas {
		if i == leader {
			q.Replicas[i].Status = "Leader"
		}
		if leader >= 0 {
			q.Replicas[i].Lag = q.Replicas[leader].LogEndOffset - q.Replicas[i].LogEndOffset
		}
	}
	slices.SortStableFunc(q.Replicas, func(a, b quorumReplica) int {
		order := []string{"Leader", "Follower", "Observer"}
		return cmp.Or(slices.Index(order, a.Status)-slices.Index(order, b.Status), cmp.Compare(a.NodeID, b.NodeID))
	})
	return q, nil
}

func (q *quorumStatus) add(states []kmsg.DescribeQuorumResponseTopicPartitionReplicaState, status string, nodes []kmsg.DescribeQuorumResponseNode) {
	for _, s := range states {
		r := quorumReplica{
			NodeID: s.ReplicaID, DirectoryID: base64.RawURLEncoding.EncodeToString(s.ReplicaDirectoryID[:]), LogEndOffset: s.LogEndOffset,
			LastFetch: s.LastFetchTimestamp, LastCaughtUp: s.LastCaughtUpTimestamp, Status: status,
		}
		for _, n := range nodes {
			for _, l := range n.Listeners {
				if n.NodeID == s.ReplicaID {
					r.Endpoints = append(r.Endpoints, fmt.Sprintf("%s://%s:%d", l.Name, l.Host, l.Port))
				}
			}
		}
		q.Replicas = append(q.Replicas, r)
	}
}

// status are Kafka's lines.
func (q quorumStatus) status() string {
	var lag, lagMs int64
	var voters, observers []string
	caughtUp := int64(-1)
	for _, r := range q.Replicas {
		if r.Status == "Leader" {
			caughtUp = r.LastCaughtUp
		}
	}
	for _, r := range q.Replicas {
		text := fmt.Sprintf(`{"id": %d`, r.NodeID)
		if strings.Trim(r.DirectoryID, "A") != "" {
			text += fmt.Sprintf(`, "directoryId": %q`, r.DirectoryID)
		}
		if r.Status == "Observer" {
			observers = append(observers, text+"}")
			continue
		}
		lag = max(lag, r.Lag)
		switch {
		case r.LastCaughtUp < 0 || lagMs < 0:
			lagMs = -1
		default:
			lagMs = max(lagMs, caughtUp-r.LastCaughtUp)
		}
		quoted := make([]string, len(r.Endpoints))
		for i, e := range r.Endpoints {
			quoted[i] = strconv.Quote(e)
		}
		voters = append(voters, fmt.Sprintf(`%s, "endpoints": [%s]}`, text, strings.Join(quoted, ", ")))
	}
	var b strings.Builder
	for _, line := range [][2]string{
		{"ClusterId:", q.ClusterID},
		{"LeaderId:", fmt.Sprint(q.LeaderID)},
		{"LeaderEpoch:", fmt.Sprint(q.LeaderEpoch)},
		{"HighWatermark:", fmt.Sprint(q.HighWatermark)},
		{"MaxFollowerLag:", fmt.Sprint(lag)},
		{"MaxFollowerLagTimeMs:", fmt.Sprint(lagMs)},
		{"CurrentVoters:", "[" + strings.Join(voters, ", ") + "]"},
		{"CurrentObservers:", "[" + strings.Join(observers, ", ") + "]"},
	} {
		fmt.Fprintf(&b, "%-24s%s\n", line[0], line[1])
	}
	return b.String()
}

// table has a line for each replica.
func (q quorumStatus) table(human bool, now time.Time) string {
	when := func(ms int64) string {
		if !human || ms < 0 {
			return strconv.FormatInt(ms, 10)
		}
		return fmt.Sprintf("%d ms ago", now.UnixMilli()-ms)
	}
	rows := [][]string{{"NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"}}
	for _, r := range q.Replicas {
		rows = append(rows, []string{
			fmt.Sprint(r.NodeID), r.DirectoryID, fmt.Sprint(r.LogEndOffset), fmt.Sprint(r.Lag), when(r.LastFetch), when(r.LastCaughtUp), r.Status,
		})
	}
	return tabbed(rows)
}
