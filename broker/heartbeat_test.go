package broker

import (
	"testing"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kerr"
)

// TestHeartbeatsAreTakenWhileTheCoordinatorLoads: of all requests of a classic group this one has no error then.
func TestHeartbeatsAreTakenWhileTheCoordinatorLoads(t *testing.T) {
	for _, row := range []struct {
		err  error
		want int16
	}{
		{coordinator.ErrLoading, 0},
		{coordinator.ErrNotCoordinator, kerr.NotCoordinator.Code},
		{coordinator.ErrUnavailable, kerr.CoordinatorNotAvailable.Code},
		{kerr.UnknownMemberID, kerr.UnknownMemberID.Code},
	} {
		if got := heartbeatRefusal(groupErrorCode(row.err)).ErrorCode; got != row.want {
			t.Errorf("%v: %d, want %d", row.err, got, row.want)
		}
	}
}
