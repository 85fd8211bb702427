package tools

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// movedOffsets is a run of records without a gap whose offsets all moved by as much: From to To, inclusive, of the files became Became and so on.
type movedOffsets struct {
	From   int64 `json:"from"`
	To     int64 `json:"to"`
	Became int64 `json:"became"`
}

// movedMax bounds how many runs are told one by one.
const movedMax = 10

// imported is the JSON form of what was imported of one partition.
type imported struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Dir       string `json:"dir"`
	Records   int64  `json:"records"`
	// First and Last are the offsets that they got, -1: there were none.
	First int64 `json:"firstOffset"`
	Last  int64 `json:"lastOffset"`
	// Kept: all offsets are those of the files. Else Moved has the first runs, and Runs says how many there are.
	Kept       bool           `json:"offsetsKept"`
	Moved      []movedOffsets `json:"moved"`
	Runs       int64          `json:"movedRuns"`
	Markers    int64          `json:"skippedMarkers"`
	Aborted    int64          `json:"skippedAborted"`    // records
	Unfinished int64          `json:"skippedUnfinished"` // records
	Tail       int64          `json:"trailingBytes"`     // of the last file, no batch

	last  movedOffsets // the run that grows
	grows bool         // there is one
}

// add counts a record: its offset in the files, and the one it got.
func (d *imported) add(was, got int64) {
	if d.Records == 0 {
		d.First, d.Kept = got, true
	}
	d.Records++
	d.Last = got
	if grows := d.grows && was == d.last.To+1 && got-was == d.last.Became-d.last.From; !grows {
		d.closeRun()
		d.last, d.grows = movedOffsets{From: was, Became: got}, true
	}
	d.last.To = was
	d.Kept = d.Kept && got == was
}

// closeRun ends the run that grows, and keeps it if it moved.
func (d *imported) closeRun() {
	if !d.grows || d.last.From == d.last.Became {
		return
	}
	d.grows = false
	d.Runs++
	if len(d.Moved) < movedMax {
		d.Moved = append(d.Moved, d.last)
	}
}

// finish waits for nothing more: it prints what was done, and what went wrong.
func (l *importer) finish(err, cause error, out Output) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &l.done
	if d.Records == 0 {
		d.First, d.Last, d.Kept = -1, -1, true
	}
	d.closeRun()
	switch {
	case l.failed != nil:
		err = l.failed
	case cause != nil && (err == nil || errors.Is(err, context.Canceled)):
		err = cause
	}
	if err != nil {
		err = fmt.Errorf("%w, %d records of %s-%d were; to begin again, delete these records (`cairn delete-records`) or take another topic: %w",
			ErrImport, d.Records, d.Topic, d.Partition, err)
	}
	if out.JSON {
		return errors.Join(out.writeJSON(d), err)
	}
	_, printErr := out.Out.Write([]byte(d.text()))
	return errors.Join(printErr, err)
}

func (d *imported) text() string {
	var s strings.Builder
	fmt.Fprintf(&s, "Imported %d records from %s to %s-%d", d.Records, d.Dir, d.Topic, d.Partition)
	switch {
	case d.Records == 0:
		s.WriteString("\n")
	case d.Kept:
		fmt.Fprintf(&s, ": offsets %d to %d, as in the files\n", d.First, d.Last)
	default:
		fmt.Fprintf(&s, ": offsets %d to %d, which are not those of the files\n", d.First, d.Last)
	}
	for _, m := range d.Moved {
		fmt.Fprintf(&s, "\toffsets %d to %d of the files became %d to %d\n", m.From, m.To, m.Became, m.Became+m.To-m.From)
	}
	if more := d.Runs - int64(len(d.Moved)); more > 0 {
		fmt.Fprintf(&s, "\tand so on, %d times more\n", more)
	}
	for _, skipped := range []struct {
		n    int64
		what string
	}{
		{d.Aborted, "records of aborted transactions"},
		{d.Unfinished, "records of transactions whose end is not in the files"},
		{d.Markers, "markers of transactions"},
		{d.Tail, "bytes at the end of the last file, which are no batch"},
	} {
		if skipped.n > 0 {
			fmt.Fprintf(&s, "\tleft out: %d %s\n", skipped.n, skipped.what)
		}
	}
	return s.String()
}
