//go:build cairn_faults

package clock

import (
	"os"
	"testing"
	"time"

	"cairn/internal/faults"
)

// orders is the file of this process, which faults looks for once.
const orders = "orders.json"

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "cairn-clock-")
	if err == nil {
		err = os.Chdir(dir)
	}
	if err == nil {
		err = os.Setenv(faults.Env, orders)
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// TestStepMovesTheWallClockAlone: by hours in both directions, and the time between two readings is what it was.
func TestStepMovesTheWallClockAlone(t *testing.T) {
	for _, step := range []time.Duration{3 * time.Hour, -3 * time.Hour, time.Second, 0} {
		before := time.Now()
		if err := faults.Give(orders, faults.Orders{ClockMs: step.Milliseconds()}); err != nil {
			t.Fatal(err)
		}
		deadline := time.After(10 * time.Second)
		for faults.Clock() != step {
			select {
			case <-deadline:
				t.Fatalf("the order of %v is not taken", step)
			case <-time.After(time.Millisecond):
			}
		}
		now, after := Now(), time.Now()
		if moved := now.Sub(before); moved < 0 || moved > after.Sub(before) {
			t.Errorf("step of %v: the monotonic clock went on by %v in %v", step, moved, after.Sub(before))
		}
		if wall := now.Round(0).Sub(before.Round(0)) - step; wall < 0 || wall > after.Sub(before)+time.Second {
			t.Errorf("step of %v: the wall clock went on by %v", step, wall+step)
		}
		if now.UnixMilli()-after.Add(step).UnixMilli() > 0 {
			t.Errorf("step of %v: %v, and the machine has %v", step, now, after)
		}
	}
}
