package tools

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/wire/private"
)

// TestFrozenBrokerDoesNotHoldUpTheQuestion: one that takes connections and says nothing is passed over for the next.
func TestFrozenBrokerDoesNotHoldUpTheQuestion(t *testing.T) {
	frozen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.Close()
	conn := privateBroker(t, func(kmsg.Request) kmsg.Response {
		return &private.LossesResponse{Body: private.LossAnswer{Losses: []Loss{{Topic: "t"}}}}
	})
	conn.Bootstrap = frozen.Addr().String() + "," + conn.Bootstrap
	ctx, cancel := context.WithTimeout(t.Context(), 5*adminAnswer)
	defer cancel()
	began := time.Now()
	losses, err := ListLosses(ctx, conn, LossesOptions{Partition: -1})
	if took := time.Since(began); err != nil || len(losses) != 1 || took > 3*adminAnswer {
		t.Errorf("%v, %v after %v", losses, err, took)
	}
}

// TestAnswerMayTakeAsLongAsItsCommand: a checkpoint that has to be copied takes longer than connections between nodes wait for an answer.
func TestAnswerMayTakeAsLongAsItsCommand(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), checkpointTimeout)
	defer cancel()
	if got := (Connection{}).connConfig(ctx).ResponseTimeout; got < checkpointTimeout-time.Minute {
		t.Errorf("the connection is given up after %v, the command after %v", got, checkpointTimeout)
	}
}
