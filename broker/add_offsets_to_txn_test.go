package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestAddOffsetsToTxnBeforeAnyGroup: a transaction takes in the offsets of a group when nobody has asked for a group's coordinator before;
// clients do so only after this answer.
func TestAddOffsetsToTxnBeforeAnyGroup(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	cl := newTestClient(t, kgo.SeedBrokers(clientAddress(n)), kgo.TransactionalID("tx"))
	ctx := testContext(t)
	id, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if n.broker.partitionsOf(offsetsTopic) != 0 {
		t.Fatal("there is an offsets topic already")
	}
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = "tx", id, epoch, "g"
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, "AddOffsetsToTxn", resp.ErrorCode, nil)
}
