package boot

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ID names the machine's present run, "" where the system does not tell.
func ID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Since is how long the machine's present run has lasted, in nanoseconds, sleep included; the same clock for all of its processes. 0 where
// the system does not tell.
func Since() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return uint64(t.Nano())
}
