package machine

import (
	"regexp"
	"testing"
)

func TestTheMachineIsKnown(t *testing.T) {
	for got, want := range map[string]string{Processors(): `^[1-9]\d* cores \(.+\)$`, LoadAverage(): `^\d+\.\d+$`} {
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("got %q, want it to match %s", got, want)
		}
	}
}
