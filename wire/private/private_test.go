package private

import (
	"reflect"
	"testing"

	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestRequestsAndResponsesBelongTogether(t *testing.T) {
	if _, err := wire.NewTable(APIs()...); err != nil {
		t.Fatal(err)
	}
	for _, api := range APIs() {
		req := api.New()
		resp := req.ResponseKind()
		if req.Key() != api.Key || resp.Key() != api.Key || reflect.TypeOf(resp.RequestKind()) != reflect.TypeOf(req) || !api.Clients {
			t.Errorf("%s: %T with key %d, %T with key %d", api.Name, req, req.Key(), resp, resp.Key())
		}
		for _, m := range []interface {
			AppendTo([]byte) []byte
			ReadFrom([]byte) error
		}{req, resp} {
			if err := m.ReadFrom(m.AppendTo(nil)); err != nil {
				t.Errorf("%T: %v", m, err)
			}
		}
	}
}

func FuzzRequests(f *testing.F) {
	for _, api := range APIs() {
		f.Add(api.New().AppendTo(nil))
	}
	f.Add((&QuarantineRequest{Body: QuarantineQuery{Topic: "t", Partition: 3, From: Quarantine{2, 5}, MaxBytes: 7}}).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, api := range APIs() {
			req := api.New()
			if req.ReadFrom(b) != nil {
				continue
			}
			again := api.New()
			if err := again.ReadFrom(req.AppendTo(nil)); err != nil || !reflect.DeepEqual(normal(req), normal(again)) {
				t.Errorf("%T: %+v became %+v, %v", req, req, again, err)
			}
		}
	})
}

// normal is the request as it goes over the wire: null and empty lists are alike there.
func normal(r kmsg.Request) string { return string(r.AppendTo(nil)) }
