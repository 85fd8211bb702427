package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
)

// loadAverage tells how busy the machine was with other things.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 0 {
		return fields[0]
	}
	return "unknown"
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	defer func() { _ = f.Close() }() // only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "model name"); ok {
			return strings.Trim(name, " \t:")
		}
	}
	return "unknown processor"
}

// javaVersion is the first line of java -version.
func javaVersion() string {
	out, err := exec.Command("java", "-version").CombinedOutput()
	if err != nil {
		return "unknown Java"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.ReplaceAll(line, `"`, "")
}
