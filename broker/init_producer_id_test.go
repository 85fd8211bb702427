package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestInitProducerID(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	c := dialNode(t, n)
	seen := map[int64]bool{}
	for version := int16(0); version <= 5; version++ {
		for range 300 { // more than one block of ids in all
			req := kmsg.NewPtrInitProducerIDRequest()
			req.Version = version
			resp := c.do(req).(*kmsg.InitProducerIDResponse)
			if resp.ErrorCode != 0 || resp.ProducerEpoch != 0 || resp.ProducerID < 0 || seen[resp.ProducerID] {
				t.Fatalf("version %d: %+v", version, resp)
			}
			seen[resp.ProducerID] = true
		}
	}
}

func TestInitProducerIDChecks(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	c := dialNode(t, n)
	text := func(s string) *string { return &s }
	for _, tc := range []struct {
		name  string
		txn   *string
		id    int64
		epoch int16
		want  *kerr.Error
	}{
		{"id and epoch of before", nil, 5, 3, nil},
		{"id alone", nil, 5, -1, kerr.InvalidRequest},
		{"epoch alone", nil, -1, 3, kerr.InvalidRequest},
		{"empty transactional id", text(""), -1, -1, kerr.InvalidRequest},
		{"transactional id, at no coordinator", text("tx"), -1, -1, kerr.NotCoordinator},
	} {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = 4, tc.txn, tc.id, tc.epoch
		resp := c.do(req).(*kmsg.InitProducerIDResponse)
		wantCode(t, tc.name, resp.ErrorCode, tc.want)
		if tc.want != nil && (resp.ProducerID != -1 || resp.ProducerEpoch != -1) {
			t.Errorf("%s: %+v", tc.name, resp)
		}
	}
}
