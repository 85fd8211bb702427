package tools

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Version is the version of this source tree, as `cairn version` tells it and clients send it.
const Version = "0.1.0"

// PrintVersion prints the version, the commit it was built from where that is known, and the Go version.
func PrintVersion(out Output) error {
	commit := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = s.Value
			}
		}
	}
	if out.JSON {
		return out.writeJSON(map[string]string{"version": Version, "commit": commit, "go": runtime.Version()})
	}
	_, err := fmt.Fprintf(out.Out, "cairn %s (commit %s, %s)\n", Version, commit, runtime.Version())
	return err
}
