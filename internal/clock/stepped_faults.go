//go:build cairn_faults

package clock

import (
	"time"

	"cairn/internal/faults"
)

// stepped sets the wall clock as the orders say.
func stepped(t time.Time) time.Time {
	if by := faults.Clock(); by != 0 {
		return Set(t, by)
	}
	return t
}
