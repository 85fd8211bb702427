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
	if got := strings.TrimPrefix(tl.table(), tableHead); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := tl.String(); got != "1 passed, 1 failed, 0 skipped, 1 not offered" {
		t.Errorf("counted %s", got)
	}
}
