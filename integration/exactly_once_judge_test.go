package integration

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/workload"
)

// suspectsMax bounds what is told of each kind; the data is kept for the rest.
const suspectsMax = 20

// suspects are the transactions and inputs that the judge did not like.
type suspects struct {
	txns   []string
	inputs []int
}

// loopOutputOf is an output: the input's number, the transaction, how many records that has, and what it was to end in.
type loopOutputOf struct {
	value, size int
	txn, fate   string
}

func parseOutput(value []byte) (o loopOutputOf, err error) {
	_, err = fmt.Sscan(string(value), &o.value, &o.txn, &o.size, &o.fate)
	return o, err
}

// judge compares the outputs with the inputs 0 to n-1.
func (l *transformLoop) judge(inputs int, outputs []workload.Record) {
	l.t.Helper()
	seen, sizes, counts, wrong := map[int]string{}, map[string]int{}, map[string]int{}, 0
	complain := func(value int, txns []string, format string, args ...any) {
		if wrong++; wrong <= suspectsMax {
			l.t.Errorf(format, args...)
			l.suspects.txns = append(l.suspects.txns, txns...)
			if value >= 0 {
				l.suspects.inputs = append(l.suspects.inputs, value)
			}
		}
	}
	for _, r := range outputs {
		o, err := parseOutput(r.Value)
		if err != nil {
			l.t.Fatalf("output %q at %d-%d: %v", r.Value, r.Partition, r.Offset, err)
		}
		if first, twice := seen[o.value]; twice {
			complain(o.value, []string{first, o.txn}, "input %d has an output of %s and, at %d-%d, one of %s", o.value, first, r.Partition, r.Offset, o.txn)
		}
		seen[o.value] = o.txn
		if o.fate != "commit" {
			complain(o.value, []string{o.txn}, "%q of an aborted transaction is seen at %d-%d", r.Value, r.Partition, r.Offset)
		}
		sizes[o.txn] = o.size
		counts[o.txn]++
	}
	for v := range inputs {
		if _, ok := seen[v]; !ok {
			complain(v, nil, "input %d has no output", v)
		}
	}
	for txn, n := range counts {
		if n != sizes[txn] {
			complain(-1, []string{txn}, "transaction %s has %d of %d records", txn, n, sizes[txn])
		}
	}
	if len(seen) > inputs {
		complain(-1, nil, "%d different outputs of %d inputs", len(seen), inputs)
	}
	l.t.Logf("%d inputs, %d outputs in %d transactions, %d faults; harms: %v", inputs, len(outputs), len(counts), wrong, l.harms)
}

// explain tells of a failed run what the topics have of the suspects, and what the processes said of them. It runs before the cluster ends.
func (l *transformLoop) explain() {
	if !l.t.Failed() {
		return
	}
	l.t.Logf("harms: %v; the processes' logs are %s/loop-*.log, and time is the same in all logs", l.harms, l.c.Dir)
	if len(l.suspects.txns)+len(l.suspects.inputs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // the test's own has ended
	defer cancel()
	var at []string // the positions of suspect inputs
	inputs, err := workload.Read(ctx, l.c.Bootstrap(), loopInput)
	for _, r := range inputs {
		if v, atoiErr := strconv.Atoi(string(r.Value)); atoiErr == nil && slices.Contains(l.suspects.inputs, v) {
			l.t.Logf("input %d is at %d-%d", v, r.Partition, r.Offset)
			at = append(at, fmt.Sprintf("%d-%d", r.Partition, r.Offset))
		}
	}
	outputs, outErr := workload.ReadWithMarkers(ctx, l.c.Bootstrap(), loopOutput)
	for _, r := range outputs {
		o, parseErr := parseOutput(r.Value)
		if parseErr == nil && (slices.Contains(l.suspects.txns, o.txn) || slices.Contains(l.suspects.inputs, o.value)) {
			l.t.Logf("output %d-%d, leader epoch %d: %q", r.Partition, r.Offset, r.LeaderEpoch, r.Value)
		}
	}
	if err != nil || outErr != nil {
		l.t.Logf("reading the topics again: %v, %v", err, outErr)
	}
	l.quoteLogs(at)
}

// quoteLogs quotes the lines of the processes' logs that tell of a suspect transaction, or of one that read a suspect input.
func (l *transformLoop) quoteLogs(inputs []string) {
	logs, err := filepath.Glob(filepath.Join(l.c.Dir, "loop-*.log"))
	must(l.t, err)
	for _, name := range logs {
		f, err := os.Open(name)
		if err != nil {
			l.t.Log(err)
			continue
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if words := strings.Fields(lines.Text()); slices.ContainsFunc(words, func(w string) bool {
				return slices.Contains(l.suspects.txns, w) || slices.ContainsFunc(inputs, func(at string) bool { return covers(w, at) })
			}) {
				l.t.Logf("%s: %s", filepath.Base(name), lines.Text())
			}
		}
		if err := lines.Err(); err != nil {
			l.t.Logf("%s: %v", name, err)
		}
		_ = f.Close() // only read
	}
}

// positions are where records lie, as PARTITION-FIRST..LAST for each row of offsets.
func positions(records []*kgo.Record) string {
	records = slices.SortedFunc(slices.Values(records), func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	var rows []string
	for i := 0; i < len(records); {
		first, last := records[i], records[i]
		for i++; i < len(records) && records[i].Partition == last.Partition && records[i].Offset == last.Offset+1; i++ {
			last = records[i]
		}
		rows = append(rows, fmt.Sprintf("%d-%d..%d", first.Partition, first.Offset, last.Offset))
	}
	return strings.Join(rows, " ")
}

// covers reports whether a row as positions writes it has the position PARTITION-OFFSET.
func covers(row, at string) bool {
	var partition, first, last, p, offset int
	if n, _ := fmt.Sscanf(row, "%d-%d..%d", &partition, &first, &last); n != 3 {
		return false
	}
	n, _ := fmt.Sscanf(at, "%d-%d", &p, &offset)
	return n == 2 && p == partition && first <= offset && offset <= last
}

func TestPositionsCoverTheirRecords(t *testing.T) {
	at := func(partition int32, offset int64) *kgo.Record {
		return &kgo.Record{Partition: partition, Offset: offset}
	}
	row := positions([]*kgo.Record{at(1, 7), at(0, 3), at(1, 9), at(0, 4), at(1, 8), at(1, 12)})
	if want := "0-3..4 1-7..9 1-12..12"; row != want {
		t.Fatalf("%q, want %q", row, want)
	}
	for where, want := range map[string]bool{"0-3": true, "0-4": true, "0-5": false, "1-4": false, "1-8": true, "1-10": false, "1-12": true, "2-3": false} {
		got := slices.ContainsFunc(strings.Fields(row), func(w string) bool { return covers(w, where) })
		if got != want {
			t.Errorf("%s is covered: %v", where, got)
		}
	}
}
