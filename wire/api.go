package wire

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// API is one row of the table of offered requests: an API key with the versions that are answered.
type API struct {
	Key  int16
	Name string
	// Min and Max are the first and the last version that are answered, those of Kafka 4.3.
	Min, Max int16
	// AnnouncedMin is the first version that ApiVersions announces. It differs from Min for Produce alone: librdkafka
	// turns features off when versions 0 to 2 are not listed (KAFKA-18659), though nobody may send them.
	AnnouncedMin int16
	// Controller: the controller listener offers it. Internal: only the controller listener offers it.
	Controller, Internal bool

	newRequest func() kmsg.Request
}

// Supports reports whether the version is answered.
func (a *API) Supports(version int16) bool { return a.Min <= version && version <= a.Max }

// PrivateKeyMin is the first API key that Kafka will not use; PrivateAPI takes keys from here on.
const PrivateKeyMin int16 = 10000

// PrivateAPI adds a request that Kafka does not have: between nodes, or from our own tools. It is never announced.
type PrivateAPI struct {
	Key        int16 // at least PrivateKeyMin
	Name       string
	MaxVersion int16 // versions 0 to MaxVersion are answered
	Clients    bool  // listeners for clients offer it too, not the controller listener only
	// New makes an empty request to parse into. Its ReadFrom bounds what it allocates by a small multiple of its input.
	New func() kmsg.Request
}

// Table is the set of offered requests. It does not change once made and may be used from any goroutine.
type Table struct {
	byKey map[int16]*API
	apis  []API // by key
}

var standard = mustTable(NewTable())

func mustTable(t *Table, err error) *Table {
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return t
}

// NewTable makes the table of Kafka's requests offered here and the private ones.
func NewTable(private ...PrivateAPI) (*Table, error) {
	t := &Table{apis: kafkaAPIs()}
	for _, p := range private {
		if p.Key < PrivateKeyMin || p.MaxVersion < 0 || p.New == nil {
			return nil, fmt.Errorf("private API %q: key %d, max version %d", p.Name, p.Key, p.MaxVersion)
		}
		t.apis = append(t.apis, API{Key: p.Key, Name: p.Name, Max: p.MaxVersion, Controller: true, Internal: !p.Clients, newRequest: p.New})
	}
	slices.SortFunc(t.apis, func(a, b API) int { return int(a.Key) - int(b.Key) })
	t.byKey = make(map[int16]*API, len(t.apis))
	for i := range t.apis {
		a := &t.apis[i]
		if t.byKey[a.Key] != nil {
			return nil, fmt.Errorf("API key %d twice: %s and %s", a.Key, t.byKey[a.Key].Name, a.Name)
		}
		t.byKey[a.Key] = a
	}
	return t, nil
}

// APIs returns the table of Kafka's requests offered here, by key. The caller owns the slice.
func APIs() []API { return standard.APIs() }

// APIs returns the rows by key. The caller owns the slice.
func (t *Table) APIs() []API { return slices.Clone(t.apis) }

// Lookup finds the row of an API key.
func (t *Table) Lookup(key int16) (API, bool) {
	a := t.byKey[key]
	if a == nil {
		return API{}, false
	}
	return *a, true
}

// kafkaAPIs lists each offered key with its range in Kafka 4.3. A key that is missing here is refused by closing the
// connection, as Kafka does.
func kafkaAPIs() []API {
	const both, internal = 1, 2
	rows := []struct {
		key      kmsg.Key
		min, max int16
		where    int
	}{
		{kmsg.Produce, 3, 13, 0},
		{kmsg.Fetch, 4, 18, 0},
		{kmsg.ListOffsets, 1, 11, 0},
		{kmsg.Metadata, 0, 13, 0},
		{kmsg.OffsetCommit, 2, 10, 0},
		{kmsg.OffsetFetch, 1, 10, 0},
		{kmsg.FindCoordinator, 0, 6, 0},
		{kmsg.JoinGroup, 0, 9, 0},
		{kmsg.Heartbeat, 0, 4, 0},
		{kmsg.LeaveGroup, 0, 5, 0},
		{kmsg.SyncGroup, 0, 5, 0},
		{kmsg.DescribeGroups, 0, 6, 0},
		{kmsg.ListGroups, 0, 5, 0},
		{kmsg.ApiVersions, 0, 4, both},
		{kmsg.CreateTopics, 2, 7, both},
		{kmsg.DeleteTopics, 1, 6, both},
		{kmsg.DeleteRecords, 0, 2, 0},
		{kmsg.InitProducerID, 0, 5, 0}, // 6 is unstable in 4.3
		{kmsg.OffsetForLeaderEpoch, 2, 4, 0},
		{kmsg.AddPartitionsToTxn, 0, 5, 0}, // clients send versions 0 to 3, brokers 4 and 5
		{kmsg.AddOffsetsToTxn, 0, 4, 0},
		{kmsg.EndTxn, 0, 5, 0},
		{kmsg.DescribeTransactions, 0, 0, 0},
		{kmsg.ListTransactions, 0, 2, 0},
		{kmsg.TxnOffsetCommit, 0, 5, 0}, // 6 is of Kafka 4.4
		{kmsg.WriteTxnMarkers, 1, 2, 0},
		{kmsg.DescribeConfigs, 1, 4, both},
		{kmsg.AlterConfigs, 0, 2, both},
		{kmsg.DescribeLogDirs, 1, 5, 0},
		{kmsg.CreatePartitions, 0, 3, both},
		{kmsg.DeleteGroups, 0, 2, 0}, // 3 is of Kafka 4.4
		{kmsg.ElectLeaders, 0, 2, both},
		{kmsg.IncrementalAlterConfigs, 0, 1, both},
		{kmsg.AlterPartitionAssignments, 0, 1, both},
		{kmsg.ListPartitionReassignments, 0, 0, both},
		{kmsg.OffsetDelete, 0, 0, 0},
		{kmsg.DescribeCluster, 0, 2, both},
		{kmsg.DescribeQuorum, 0, 2, both},
		{kmsg.UpdateFeatures, 0, 2, both},
		{kmsg.DescribeProducers, 0, 0, 0},
		{kmsg.AlterPartition, 2, 3, internal},
		{kmsg.BrokerRegistration, 0, 4, internal},
		{kmsg.BrokerHeartbeat, 0, 2, internal},
		{kmsg.AllocateProducerIDs, 0, 0, internal},
		{kmsg.ConsumerGroupHeartbeat, 0, 1, 0},
		{kmsg.ConsumerGroupDescribe, 0, 1, 0},
		{kmsg.DescribeTopicPartitions, 0, 0, 0},
	}
	apis := make([]API, 0, len(rows))
	for _, r := range rows {
		a := API{Key: int16(r.key), Name: r.key.Name(), Min: r.min, Max: r.max, AnnouncedMin: r.min, Controller: r.where != 0, Internal: r.where == internal}
		a.newRequest = func() kmsg.Request { return kmsg.RequestForKey(a.Key) }
		if r.key == kmsg.Produce {
			a.AnnouncedMin = 0
		}
		apis = append(apis, a)
	}
	return apis
}
