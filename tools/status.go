package tools

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/wire/private"
)

// What a screen has room for; the JSON form has all.
const (
	statusListMax    = 8 // partitions, groups, warnings
	statusBrokersMax = 16
)

// ClusterStatus is the state of a cluster at one look. Sizes are in bytes; -1: not told.
type ClusterStatus struct {
	ClusterID       string           `json:"clusterId"`
	Controller      int32            `json:"activeController"` // -1: none
	Voters          []quorumReplica  `json:"voters"`
	Brokers         []brokerStatus   `json:"brokers"`
	Topics          int              `json:"topics"`
	Partitions      int              `json:"partitions"`
	Offline         []topicPartition `json:"offlinePartitions"`
	UnderReplicated []topicPartition `json:"underReplicatedPartitions"`
	UnderMinISR     []topicPartition `json:"underMinIsrPartitions"`
	Losses          int              `json:"losses"`      // ranges that nobody has recovered or removed yet
	LostRecords     int64            `json:"lostRecords"` // in those
	Groups          []groupLag       `json:"groups"`      // by lag, largest first
	Unanswered      []string         `json:"unanswered"`
}

type brokerStatus struct {
	ID       int32  `json:"id"`
	Address  string `json:"address"`
	Fenced   bool   `json:"fenced"`
	Leaders  int    `json:"leaders"`
	Replicas int    `json:"replicas"`
	Behind   int    `json:"outOfSyncReplicas"`
	Stored   int64  `json:"storedBytes"`
	Total    int64  `json:"diskBytes"`
	Usable   int64  `json:"usableBytes"`
	// SpaceLevel says what the disk has room for: 0 everything, 1 no records of clients, 2 no records at all, 3 nothing.
	SpaceLevel int32            `json:"spaceLevel"`
	MinFree    int64            `json:"minFreeBytes"`
	Damaged    []topicPartition `json:"damaged"` // not repaired yet
	// ScrubEndedMs is when all that is stored was last read and checked, ms since 1970; 0: not since the start of the process.
	ScrubEndedMs int64 `json:"scrubEndedMs"`
}

type groupLag struct {
	Group   string `json:"group"`
	State   string `json:"state"`
	Members int    `json:"members"`
	Lag     int64  `json:"lag"`
}

// Healthy reports whether nothing asks for an operator: all brokers live, all partitions led and replicated, no
// loss that nobody has dealt with.
func (s *ClusterStatus) Healthy() bool {
	return s.Controller >= 0 && len(s.Offline)+len(s.UnderReplicated)+len(s.UnderMinISR)+s.Losses+len(s.Unanswered) == 0 &&
		!slices.ContainsFunc(s.Brokers, brokerStatus.needsAttention)
}

func (b brokerStatus) needsAttention() bool {
	return b.Fenced || b.SpaceLevel > 0 || len(b.Damaged) > 0
}

// Status prints one screen about the cluster. The error is nil also when the cluster is not healthy, unless failing is asked for.
func Status(ctx context.Context, conn Connection, check bool, out Output) error {
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		s, err := askStatus(ctx, conn, cl)
		if err != nil {
			return err
		}
		if out.JSON {
			err = out.writeJSON(s)
		} else {
			_, err = fmt.Fprint(out.Out, s.screen(time.Now()))
		}
		if err == nil && check && !s.Healthy() {
			err = fmt.Errorf("the cluster needs attention")
		}
		return err
	})
}

func askStatus(ctx context.Context, conn Connection, cl *kgo.Client) (*ClusterStatus, error) {
	s := &ClusterStatus{Controller: -1}
	if err := s.askBrokers(ctx, cl); err != nil {
		return nil, err
	}
	if err := s.askPartitions(ctx, cl); err != nil {
		return nil, err
	}
	// What follows may fail while a part of the cluster is down: that is news, not the end of the report.
	s.note("quorum", s.askController(ctx, cl))
	s.askDisks(ctx, cl)
	s.askStores(ctx, conn)
	s.note("losses", s.askLosses(ctx, conn))
	s.note("groups", s.askGroups(ctx, cl))
	return s, nil
}

func (s *ClusterStatus) note(what string, err error) {
	if err != nil {
		s.Unanswered = append(s.Unanswered, fmt.Sprintf("%s: %v", what, Explain(err)))
	}
}

func (s *ClusterStatus) askBrokers(ctx context.Context, cl *kgo.Client) error {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType, req.IncludeFencedBrokers = 1, true
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if err := brokerError(resp.ErrorCode, resp.ErrorMessage); err != nil {
		return err
	}
	s.ClusterID = resp.ClusterID
	for _, b := range resp.Brokers {
		s.Brokers = append(s.Brokers, brokerStatus{
			ID: b.NodeID, Address: net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))), Fenced: b.IsFenced, Stored: -1, Total: -1, Usable: -1, MinFree: -1,
		})
	}
	slices.SortFunc(s.Brokers, func(a, b brokerStatus) int { return cmp.Compare(a.ID, b.ID) })
	return nil
}

func (s *ClusterStatus) askController(ctx context.Context, cl *kgo.Client) error {
	q, err := askQuorum(ctx, cl)
	if err != nil {
		return err
	}
	s.Controller = q.LeaderID
	for _, r := range q.Replicas {
		if r.Status != "Observer" {
			s.Voters = append(s.Voters, r)
		}
	}
	return nil
}

// askPartitions counts topics and partitions, and names those that are not as they should be.
func (s *ClusterStatus) askPartitions(ctx context.Context, cl *kgo.Client) error {
	found, err := kadm.NewClient(cl).ListTopicsWithInternal(ctx)
	if err != nil {
		return err
	}
	byID := map[int32]*brokerStatus{}
	for i := range s.Brokers {
		byID[s.Brokers[i].ID] = &s.Brokers[i]
	}
	s.Topics = len(found)
	for _, t := range found.Sorted() {
		for _, p := range t.Partitions.Sorted() {
			s.Partitions++
			s.count(topicPartition{p.Topic, p.Partition}, p, byID)
		}
	}
	return s.askMinISR(ctx, cl, found)
}

func (s *ClusterStatus) count(tp topicPartition, p kadm.PartitionDetail, byID map[int32]*brokerStatus) {
	if p.Leader < 0 {
		s.Offline = append(s.Offline, tp)
	} else if b := byID[p.Leader]; b != nil {
		b.Leaders++
	}
	if len(p.ISR) < len(p.Replicas) {
		s.UnderReplicated = append(s.UnderReplicated, tp)
	}
	for _, r := range p.Replicas {
		b := byID[r]
		if b == nil {
			continue
		}
		b.Replicas++
		if !slices.Contains(p.ISR, r) {
			b.Behind++
		}
	}
}

// askMinISR finds partitions with fewer in-sync replicas than acks=all needs.
func (s *ClusterStatus) askMinISR(ctx context.Context, cl *kgo.Client, topics kadm.TopicDetails) error {
	if len(s.UnderReplicated) == 0 {
		return nil
	}
	var names []string
	for _, tp := range s.UnderReplicated {
		if !slices.Contains(names, tp.Topic) {
			names = append(names, tp.Topic)
		}
	}
	configs, err := kadm.NewClient(cl).DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return err
	}
	least := map[string]int{}
	for _, c := range configs {
		for _, kv := range c.Configs {
			if n, err := strconv.Atoi(kv.MaybeValue()); err == nil && kv.Key == "min.insync.replicas" {
				least[c.Name] = n
			}
		}
	}
	for _, tp := range s.UnderReplicated {
		p := topics[tp.Topic].Partitions[tp.Partition]
		if len(p.ISR) < min(least[tp.Topic], len(p.Replicas)) {
			s.UnderMinISR = append(s.UnderMinISR, tp)
		}
	}
	return nil
}

// askDisks asks each live broker what it stores and how much room it has.
func (s *ClusterStatus) askDisks(ctx context.Context, cl *kgo.Client) {
	for i := range s.Brokers {
		b := &s.Brokers[i]
		if b.Fenced {
			continue
		}
		resp, err := kmsg.NewPtrDescribeLogDirsRequest().RequestWith(ctx, cl.Broker(int(b.ID)))
		if err == nil {
			err = brokerError(resp.ErrorCode, nil)
		}
		if err != nil {
			s.note(fmt.Sprintf("disk of broker %d", b.ID), err)
			continue
		}
		b.Stored, b.Total, b.Usable = 0, 0, 0
		for _, d := range resp.Dirs {
			s.note(fmt.Sprintf("disk of broker %d, %s", b.ID, d.Dir), brokerError(d.ErrorCode, nil))
			b.Total, b.Usable = b.Total+d.TotalBytes, b.Usable+d.UsableBytes
			for _, t := range d.Topics {
				for _, p := range t.Partitions {
					b.Stored += p.Size
				}
			}
		}
	}
}

// askStores asks each live broker how full its disk is to it, and what is damaged.
func (s *ClusterStatus) askStores(ctx context.Context, conn Connection) {
	for i := range s.Brokers {
		b := &s.Brokers[i]
		if b.Fenced {
			continue
		}
		resp, err := askStore(ctx, conn, b.Address)
		if err != nil {
			s.note(fmt.Sprintf("store of broker %d", b.ID), err)
			continue
		}
		answer := resp.(*private.StoreResponse).Body
		b.SpaceLevel, b.MinFree, b.ScrubEndedMs = answer.Level, answer.MinFree, answer.ScrubEndedMs
		for _, t := range answer.Damaged {
			for _, p := range t.Partitions {
				b.Damaged = append(b.Damaged, topicPartition{t.Topic, p})
			}
		}
	}
}

// askStore does not wait for a broker that is frozen: it is news that it does not answer.
func askStore(ctx context.Context, conn Connection, address string) (kmsg.Response, error) {
	wait, cancel := context.WithTimeout(ctx, adminAnswer)
	defer cancel()
	resp, err := conn.ask(wait, address, &private.StoreRequest{})
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("it did not answer within %v: is its process stopped, or its machine?", adminAnswer)
	}
	return resp, err
}

func (s *ClusterStatus) askLosses(ctx context.Context, conn Connection) error {
	losses, err := ListLosses(ctx, conn, LossesOptions{Partition: -1})
	if err != nil {
		return err
	}
	for _, l := range losses {
		if l.RecoveredTo != "" || l.DroppedMs > 0 {
			continue // somebody has dealt with it; `cairn losses` goes on listing it
		}
		s.Losses++
		s.LostRecords += l.Records
	}
	return nil
}

func (s *ClusterStatus) askGroups(ctx context.Context, cl *kgo.Client) error {
	lags, err := kadm.NewClient(cl).Lag(ctx)
	if err != nil {
		return err
	}
	for _, g := range lags.Sorted() {
		if err := g.Error(); err != nil {
			s.note("group "+g.Group, err)
			continue
		}
		s.Groups = append(s.Groups, groupLag{g.Group, g.State, len(g.Members), g.Lag.Total()})
	}
	slices.SortStableFunc(s.Groups, func(a, b groupLag) int { return cmp.Compare(b.Lag, a.Lag) })
	return nil
}
