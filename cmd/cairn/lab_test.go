package main

import (
	"strings"
	"testing"
)

func TestLabSaysWhatIsThere(t *testing.T) {
	for _, tc := range []struct {
		line string
		code int
		want string // part of what is printed
	}{
		{"lab list", 0, "all-survives-twice"},
		{"lab list --json", 0, `"after":"acks1-offline"`},
		{"lab run", 2, "name the experiment"},
		{"lab run nonsense", 2, "`cairn lab list` lists them"},
		{"lab run clamp-open nonsense", 2, `unexpected argument "nonsense"`},
		{"lab run clamp-open --nonsense", 2, "cairn lab run --help"},
	} {
		code, out, err := runLine(t, tc.line)
		if code != tc.code || !strings.Contains(out+err, tc.want) {
			t.Errorf("cairn %s: exit code %d, want %d and %q:\n%s%s", tc.line, code, tc.code, tc.want, out, err)
		}
	}
}
