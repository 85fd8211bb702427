package main

import "testing"

func TestARunReplacesItsSectionsAlone(t *testing.T) {
	old := format([]section{{"Start", "before"}, {"Consume", "a\n\n### b\n\nc"}, {notes, "by people\n\n* one"}})
	got := format(merge(parse(old), []section{{"Consume", "now\n"}, {"Failover", "new\n"}}))
	want := format([]section{{"Start", "before"}, {"Consume", "now"}, {"Failover", "new"}, {notes, "by people\n\n* one"}})
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if again := format(merge(parse(got), nil)); again != got {
		t.Errorf("a second time\n%s", again)
	}
	if first := format(merge(parse(""), []section{{"Start", "x"}})); first != preface+"\n## Start\n\nx\n" {
		t.Errorf("without a file\n%s", first)
	}
}
