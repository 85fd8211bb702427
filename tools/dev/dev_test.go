package dev

import (
	"bytes"
	"strings"
	"testing"

	"cairn/tools"
)

func TestOptionsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		opts Options
		want string
	}{
		{Options{Nodes: 0, Controllers: 1}, "--nodes 0"},
		{Options{Nodes: 3, Controllers: 2}, "--controllers 2"},
		{Options{Nodes: 3, Controllers: 1, Port: 65535}, "--port 65535"},
		{Options{Nodes: 1, Controllers: 1, Properties: []string{"x"}}, "want NAME=VALUE"},
	} {
		var out, note bytes.Buffer
		err := Run(t.Context(), tc.opts, tools.Output{Out: &out, Err: &note})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v, want %q", tc.opts, err, tc.want)
		}
	}
}
