package nearest

import (
	"slices"
	"testing"
)

func TestEditDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"abc", "axc", 1}, {"abc", "ab", 1}, {"kitten", "sitting", 3}, {"a", "abcdefgh", 5}, {"lsit", "list", 1}, {"ab", "ba", 1}, {"hepl", "help", 1}, {"abcd", "badc", 2}} {
		if got := editDistance(tc.a, tc.b, 5); got != tc.want {
			t.Errorf("%q %q: %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

func TestNameIsTheNearestOrNone(t *testing.T) {
	known := []string{"listeners", "listener.name", "log.dirs"}
	for name, want := range map[string]string{"lisners": "listeners", "log.dir": "log.dirs", "listeners": "listeners", "zookeeper": "", "": ""} {
		if got := Name(name, slices.Values(known)); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
