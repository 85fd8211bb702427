package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// producer.id.expiration.ms changes at run time, for the whole cluster.
func TestSilentProducersExpireAsConfigured(t *testing.T) {
	n := startNode(t, t.TempDir(), "producer.id.expiration.check.interval.ms=20")
	defer stopNode(t, n)
	id := mustTopic(t, n, "t", 1, nil)
	c := dialNode(t, n)
	first := produceReq(9, -1, "t", id, 0, testBatch(t, 1, fromProducer(900, 3, 0)))
	gap := produceReq(9, -1, "t", id, 0, testBatch(t, 1, fromProducer(900, 3, 50)))
	wantCode(t, "first", c.produce(first).ErrorCode, nil)
	wantCode(t, "gap", c.produce(gap).ErrorCode, kerr.OutOfOrderSequenceNumber)
	adm := kadm.NewClient(newTestClient(t, kgo.SeedBrokers(clientAddress(n))))
	value := "1"
	if _, err := adm.AlterBrokerConfigs(testContext(t), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "producer.id.expiration.ms", Value: &value}}); err != nil {
		t.Fatal(err)
	}
	p := awaitLeader(t, n, "t", 0)
	eventually(t, func() *struct{} {
		if _, known := p.log().Producer(900); known {
			return nil
		}
		return &struct{}{}
	})
	wantCode(t, "any sequence of an unknown producer", c.produce(gap).ErrorCode, nil)
}
