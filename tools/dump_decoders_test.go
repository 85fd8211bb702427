package tools

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDumpDecoders(t *testing.T) {
	commit := kmsg.OffsetCommitKey{Version: 1, Group: "g", Topic: "t", Partition: 3}
	committed := kmsg.OffsetCommitValue{Version: 3, Offset: 10, LeaderEpoch: 2, Metadata: "m", CommitTimestamp: 5}
	group := kmsg.GroupMetadataKey{Version: 2, Group: "g"}
	stable := kmsg.GroupMetadataValue{
		Version: 3, ProtocolType: "consumer", Generation: 1, Protocol: kmsg.StringPtr("range"), Leader: kmsg.StringPtr("a"), CurrentStateTimestamp: 7,
		Members: []kmsg.GroupMetadataValueMember{{
			MemberID: "a", ClientID: "c", ClientHost: "/h", RebalanceTimeoutMillis: 1, SessionTimeoutMillis: 2, Subscription: []byte{1}, Assignment: []byte{2},
		}},
	}
	txn := kmsg.TxnMetadataKey{TransactionalID: "x"}
	ongoing := kmsg.NewTxnMetadataValue()
	ongoing.Version, ongoing.ProducerID, ongoing.ProducerEpoch, ongoing.TimeoutMillis, ongoing.State = 1, 9, 4, 60000, 1
	ongoing.PreviousProducerID, ongoing.ClientTransactionVersion = 8, 2
	ongoing.Topics = []kmsg.TxnMetadataValueTopic{{Topic: "t", Partitions: []int32{0, 1}}}
	ongoing.LastUpdateTimestamp, ongoing.StartTimestamp = 11, 10

	for _, c := range []struct {
		decoder              DumpDecoder
		key, value           []byte
		wantKey, wantPayload string
	}{
		{
			DecodeOffsets, commit.AppendTo(nil), committed.AppendTo(nil), `{"type":"1","data":{"group":"g","topic":"t","partition":3}}`,
			`{"version":"3","data":{"offset":10,"leaderEpoch":2,"metadata":"m","commitTimestamp":5}}`,
		},
		{DecodeOffsets, commit.AppendTo(nil), nil, `{"type":"1","data":{"group":"g","topic":"t","partition":3}}`, "<DELETE>"},
		{
			DecodeOffsets, group.AppendTo(nil), stable.AppendTo(nil), `{"type":"2","data":{"group":"g"}}`,
			`{"version":"3","data":{"protocolType":"consumer","generation":1,"protocol":"range","leader":"a","currentStateTimestamp":7,"members":[` +
				`{"memberId":"a","groupInstanceId":null,"clientId":"c","clientHost":"/h","rebalanceTimeout":1,"sessionTimeout":2,"subscription":"AQ==","assignment":"Ag=="}]}}`,
		},
		{
			DecodeTransactions, txn.AppendTo(nil), ongoing.AppendTo(nil), `{"type":"0","data":{"transactionalId":"x"}}`,
			`{"version":"1","data":{"producerId":9,"previousProducerId":8,"producerEpoch":4,"transactionTimeoutMs":60000,"transactionStatus":1,` +
				`"transactionPartitions":[{"topic":"t","partitionIds":[0,1]}],"transactionLastUpdateTimestampMs":11,"transactionStartTimestampMs":10,"clientTransactionVersion":2}}`,
		},
	} {
		k, v, err := c.decoder.decode(c.key, c.value)
		if err != nil || k != c.wantKey || v != c.wantPayload {
			t.Errorf("got\n%s\n%s\n%v\nwant\n%s\n%s", k, v, err, c.wantKey, c.wantPayload)
		}
	}
	for _, bad := range [][2][]byte{{nil, nil}, {{0}, nil}, {{0, 9}, nil}, {commit.AppendTo(nil), {0}}, {commit.AppendTo(nil), {0, 99}}} {
		if _, _, err := DecodeOffsets.decode(bad[0], bad[1]); !errors.Is(err, errNoDecoder) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func FuzzDumpDecoders(f *testing.F) {
	commit := kmsg.OffsetCommitKey{Version: 1, Group: "g", Topic: "t"}
	value := kmsg.OffsetCommitValue{Version: 3}
	f.Add(commit.AppendTo(nil), value.AppendTo(nil))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		for _, d := range []DumpDecoder{DecodeOffsets, DecodeTransactions} {
			if k, v, err := d.decode(key, value); err == nil && (k == "" || v == "") {
				t.Errorf("decoded to %q and %q", k, v)
			}
		}
	})
}
