package machine

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
)

const unknown = "unknown"

// Processors are the machine's: how many cores, and of which kind.
func Processors() string { return fmt.Sprintf("%d cores (%s)", runtime.NumCPU(), model()) }

func model() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return unknown + " processor"
	}
	defer func() { _ = f.Close() }() // only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "model name"); ok {
			return strings.Trim(name, " \t:")
		}
	}
	return unknown + " processor"
}

// LoadAverage is that of the last minute.
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 0 {
		return fields[0]
	}
	return unknown
}
