package broker

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// sequenced asks for one record of producer 900, with a short time for acks=all.
func (d *deafCluster) sequenced(t *testing.T, c *rawClient, sequence int32, timeout time.Duration) (code int16, base int64) {
	t.Helper()
	req := produceReq(9, -1, "t", d.id, 0, testBatch(t, 1, fromProducer(900, 0, sequence)))
	req.TimeoutMillis = int32(timeout.Milliseconds())
	p := c.produce(req)
	return p.ErrorCode, p.BaseOffset
}

// A request that has timed out leaves the producer's state as the log has it: the batch is there once, whether it is repeated before or after it
// became durable.
func TestRepeatedBatchesAfterATimeout(t *testing.T) {
	d := startDeaf(t, 3, "1", testTimeout)
	defer d.close(t)
	d.awaitISR(t, 1, 2, 3)
	c := dialNode(t, d.brokers[0])
	d.deaf[2].Store(true)
	d.deaf[3].Store(true)
	const tries = 2
	for range tries {
		for sequence := range int32(5) {
			code, _ := d.sequenced(t, c, sequence, 100*time.Millisecond)
			wantCode(t, "while nobody else has it", code, kerr.RequestTimedOut)
		}
	}
	code, _ := d.sequenced(t, c, 7, 100*time.Millisecond)
	wantCode(t, "a gap", code, kerr.OutOfOrderSequenceNumber)
	d.deaf[2].Store(false)
	d.deaf[3].Store(false)
	for range tries {
		for sequence := range int32(5) {
			code, base := d.sequenced(t, c, sequence, testTimeout)
			if wantCode(t, "again", code, nil); base != int64(sequence) {
				t.Errorf("sequence %d is at offset %d", sequence, base)
			}
		}
	}
	code, base := d.sequenced(t, c, 5, testTimeout)
	if wantCode(t, "the next one", code, nil); base != 5 || d.leader(t).log().End() != 6 {
		t.Errorf("the next one is at offset %d, the log ends at %d", base, d.leader(t).log().End())
	}
}

// Batches that the leader's death has dropped leave no hole that refuses them when they are repeated to the next leader.
func TestRepeatedBatchesAfterTheLeadersDeath(t *testing.T) {
	d := startDeaf(t, 3, "1", testTimeout)
	defer d.close(t)
	d.awaitISR(t, 1, 2, 3)
	c := dialNode(t, d.brokers[0])
	code, _ := d.sequenced(t, c, 0, testTimeout)
	wantCode(t, "the first", code, nil)
	d.deaf[2].Store(true)
	d.deaf[3].Store(true)
	for sequence := range int32(4) {
		code, _ := d.sequenced(t, c, sequence+1, 100*time.Millisecond)
		wantCode(t, "while nobody else has it", code, kerr.RequestTimedOut)
	}
	d.stop(t, 1)
	d.deaf[2].Store(false)
	d.deaf[3].Store(false)
	for sequence := range int32(6) {
		d.repeat(t, sequence)
	}
}

// repeat sends a record to whoever leads, as a client does: leadership may move once more.
func (d *deafCluster) repeat(t *testing.T, sequence int32) {
	t.Helper()
	eventually(t, func() *struct{} {
		for _, n := range d.brokers[1:] {
			if p, err := n.broker.replicas.lookup("t", 0); err != nil || !p.isLeader() {
				continue
			}
			code, base := d.sequenced(t, dialNode(t, n), sequence, testTimeout)
			if code == kerr.NotLeaderForPartition.Code || code == kerr.RequestTimedOut.Code {
				continue
			}
			if wantCode(t, "to the next leader", code, nil); base != int64(sequence) {
				t.Errorf("sequence %d is at offset %d", sequence, base)
			}
			return &struct{}{}
		}
		return nil
	})
}
