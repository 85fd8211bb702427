package controller

import (
	"reflect"
	"testing"
	"testing/synctest"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

func TestReportRequestComesBack(t *testing.T) {
	for _, c := range []Command{
		AlterPartitions{1, 2, []ISRChange{{testID(1), 2, 3, 4, []ISRMember{{1, -1}}}}},
		ChangeVoters{1, 2, []VotersReport{{testID(1), 2, 3, 4, []ids.ReplicaID{5}}}},
		ChangeLosses{1, 2, []LossReport{{testID(1), 2, 3, []LostRange{{1, 2, 3}}, []LostRange{{4, 5, 6}}, 7}}},
		RenewReplicas{1, 2, []ids.ReplicaID{3}},
	} {
		var got ReportRequest
		if err := got.ReadFrom((&ReportRequest{Command: c}).AppendTo(nil)); err != nil || !reflect.DeepEqual(got.Command, c) {
			t.Errorf("%T came back as %+v, %v", c, got.Command, err)
		}
	}
	for _, c := range []Command{SetLevel{1}, NextGenerations{}, NoteEnds{}, Claim{}} {
		var got ReportRequest
		if err := got.ReadFrom((&ReportRequest{Command: c}).AppendTo(nil)); err == nil {
			t.Errorf("%T was taken from a broker", c)
		}
	}
	answer := ReportResponse{Code: 3, Message: "m", Items: []ItemResult{{Code: 4, Leader: 5}}}
	var got ReportResponse
	if err := got.ReadFrom(answer.AppendTo(nil)); err != nil || !reflect.DeepEqual(got, answer) {
		t.Errorf("response came back as %+v, %v", got, err)
	}
}

func TestReportsAreProposed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuorum(t, 1, nil)
		defer q.close()
		q.elect(0)
		conn := q.nodes[0].ctl.NewConn()
		defer conn.Close()
		q.brokers(conn, 1)
		stale := AlterPartitions{Broker: 1, Epoch: q.image().Brokers[1].Epoch - 1}
		if r := conn.Handle(t.Context(), &ReportRequest{Command: stale}).(*ReportResponse); r.Code != kerr.StaleBrokerEpoch.Code {
			t.Errorf("stale broker epoch: %+v", r)
		}
		unknown := AlterPartitions{Broker: 1, Epoch: q.image().Brokers[1].Epoch, Partitions: []ISRChange{{TopicID: testID(9)}}}
		if r := conn.Handle(t.Context(), &ReportRequest{Command: unknown}).(*ReportResponse); len(r.Items) != 1 || r.Items[0].Code != kerr.UnknownTopicID.Code {
			t.Errorf("unknown topic: %+v", r)
		}
		if r := conn.Handle(t.Context(), &ReportRequest{Command: SetLevel{1}}).(*ReportResponse); r.Code != kerr.InvalidRequest.Code || q.image().Level != 0 {
			t.Errorf("not a report: %+v", r)
		}
		q.depose()
		if r := conn.Handle(t.Context(), &ReportRequest{Command: unknown}).(*ReportResponse); r.Code != kerr.NotController.Code {
			t.Errorf("not active: %+v", r)
		}
	})
}
