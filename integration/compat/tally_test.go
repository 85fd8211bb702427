package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestTableShowsEachOutcome(t *testing.T) {
	var tl tally
	tl.check("one node", "TopicCommand", "create", func() error { return nil })
	tl.check("one node", "TopicCommand", "list", func() error { return errors.New("a|b\nmore") })
	tl.check("three nodes", "AclCommand", "list", func() error { return fmt.Errorf("%w: no ACLs", errNotOffered) })
	want := `## One node

| client or tool | what | result |
|---|---|---|
| TopicCommand | create | passed |
| TopicCommand | list | failed: a\|b |

## Three nodes

| client or tool | what | result |
|---|---|---|
| AclCommand | list | not offered: no ACLs |
`
	if got := merge("", tl.sections(false)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := tl.String(); got != "1 passed, 1 failed, 0 skipped, 1 not offered" {
		t.Errorf("counted %s", got)
	}
}

func TestMatrixNotesWhatDidNotPass(t *testing.T) {
	var tl tally
	tl.check(clientsShape, "kcat", "create", func() error { return fmt.Errorf("%w by the client: no admin", errNotOffered) })
	tl.check(clientsShape, "kcat", "fetch", func() error { return nil })
	tl.check(clientsShape, "kcat", "delete", func() error { return fmt.Errorf("%w by the client: no admin", errNotOffered) })
	tl.check(clientsShape, "sarama", "create", func() error { return errors.New("create: boom") })
	want := `## Clients

| | kcat | sarama |
|---|---|---|
| create | not offered (1) | failed (2) |
| fetch | passed |  |
| delete | not offered (1) |  |

1. no admin
2. create: boom
`
	if got := merge("", tl.sections(true)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := tl.sections(false); len(got) != 0 {
		t.Errorf("a run of some clients writes %v", got)
	}
}

func TestMergeKeepsWhatDidNotRun(t *testing.T) {
	old := "# Page\n\ntext\n\n## A\n\nold a\n\n## B\n\nold b\n"
	got := merge(old, []section{{"## B", "## B\n\nnew b\n"}, {"## C", "## C\n\nnew c\n"}})
	if want := "## A\n\nold a\n\n## B\n\nnew b\n\n## C\n\nnew c\n"; got != want {
		t.Errorf("got %s, want %s", strings.ReplaceAll(got, "\n", `\n`), want)
	}
}
