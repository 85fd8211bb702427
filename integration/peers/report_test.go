package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

func TestFiguresAreMediansWithTheirSpread(t *testing.T) {
	for _, row := range []struct {
		list []float64
		want string
	}{
		{nil, ""},
		{[]float64{0}, "0"},
		{[]float64{1234.5}, "1234"},
		{[]float64{0.01234}, "0.012"},
		{[]float64{12.34}, "12.3"},
		{[]float64{3, 1, 2}, "2.00 (1.00 to 3.00)"},
	} {
		if got := spreadOf(row.list).String(); got != row.want {
			t.Errorf("%v: %q, want %q", row.list, got, row.want)
		}
	}
}

func TestReportComparesRoundByRound(t *testing.T) {
	r := newReport(options{rounds: 3, nodes: []int{1}, only: regexp.MustCompile("")})
	all, c := systems(1), comparisons()[0]
	for round, v := range []float64{10, 20, 30} {
		r.note(all[0], c.wire, c.metric, round, 2*v)
		r.note(all[1], c.wire, c.metric, round, v)
		r.note(all[2], c.nats, c.metric, round, 4*v)
	}
	r.note(all[0], c.wire, c.metric, 3, 1) // the others have no such round
	r.failed(errors.New("first line\ndeeper"))
	text := r.String()
	for _, want := range []string{
		"| produce 1 KiB, MB/s | 40.0 (1.00 to 60.0) | 20.0 (10.0 to 30.0) | 80.0 (40.0 to 120) |  |  |  | 2.00 (2.00 to 2.00) | 0.500 (0.500 to 0.500) |  |  |\n",
		"* first line\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "deeper") {
		t.Error("more than a line of an error")
	}
}

func TestProduceCells(t *testing.T) {
	for name, cells := range map[string]int{"cairn": 16, "Kafka": 16, "NATS": 8} {
		s := session{sys: system{name: name}}
		keys := 0
		all := s.produceCells()
		for cell := range all {
			if keyCell(cell) {
				keys++
			}
		}
		if len(all) != cells || keys != 4 {
			t.Errorf("%s has %d cells, %d of them compared", name, len(all), keys)
		}
		for _, c := range comparisons() {
			cell := c.of(system{name: name})
			if _, ok := all[cell]; strings.HasPrefix(cell, "produce") && !ok {
				t.Errorf("%s has no cell %q", name, cell)
			}
		}
	}
}
