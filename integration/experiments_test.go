package integration

import (
	"os"
	"testing"

	"cairn/tools"
	"cairn/tools/lab"
)

// TestExperiments runs each experiment of the lab, in fast form unless CAIRN_LONG is set.
func TestExperiments(t *testing.T) {
	binary := cairnBinary(t)
	for _, e := range lab.Experiments() {
		t.Run(e.Name, func(t *testing.T) {
			v, err := lab.Run(t.Context(), e.Name, lab.Options{Binary: binary, Fast: !long()}, tools.Output{Out: t.Output(), Err: os.Stderr})
			if err != nil {
				t.Fatal(err)
			}
			if !v.Passed || len(v.Steps) == 0 {
				t.Fatalf("no error, but the verdict is %+v", v)
			}
		})
	}
}
