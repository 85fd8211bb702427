package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestRequestsThatNameTooManyPartitionsCloseTheConnection(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	produce := produceReq(9, 1, "t", kadm.TopicID{}, 0, nil)
	fetch := fetchTopic(11, "t", kadm.TopicID{}, 0)
	list := listReq(5, "t", 0, -1)
	epochs := kmsg.NewPtrOffsetForLeaderEpochRequest()
	epochs.Version = 3
	epochs.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "t"}}
	for range maxRequestPartitions {
		produce.Topics[0].Partitions = append(produce.Topics[0].Partitions, produce.Topics[0].Partitions[0])
		fetch.Topics[0].Partitions = append(fetch.Topics[0].Partitions, fetch.Topics[0].Partitions[0])
		list.Topics[0].Partitions = append(list.Topics[0].Partitions, list.Topics[0].Partitions[0])
	}
	epochs.Topics[0].Partitions = make([]kmsg.OffsetForLeaderEpochRequestTopicPartition, maxRequestPartitions+1)
	transactions := kmsg.NewPtrAddPartitionsToTxnRequest() // that name no partition
	transactions.Version = 5
	transactions.Transactions = make([]kmsg.AddPartitionsToTxnRequestTransaction, maxRequestPartitions+1)
	markers := kmsg.NewPtrWriteTxnMarkersRequest()
	markers.Version = 1
	markers.Markers = make([]kmsg.WriteTxnMarkersRequestMarker, maxRequestPartitions+1)
	for _, req := range []kmsg.Request{produce, fetch, list, epochs, transactions, markers} {
		c := dialNode(t, n)
		c.send(req)
		if !c.closed() {
			t.Errorf("%s was answered", kmsg.NameForKey(req.Key()))
		}
	}
	fetch.Topics[0].Partitions = fetch.Topics[0].Partitions[:maxRequestPartitions]
	if got := len(dialNode(t, n).fetch(fetch).Topics[0].Partitions); got != maxRequestPartitions {
		t.Errorf("%d partitions answered", got)
	}
}
