package main

import (
	"os/exec"
	"strings"
)

// javaVersion is the first line of java -version.
func javaVersion() string {
	out, err := exec.Command("java", "-version").CombinedOutput()
	if err != nil {
		return "unknown Java"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.ReplaceAll(line, `"`, "")
}
