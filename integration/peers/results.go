package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// figures are what a step gave: by cell and metric.
type figures map[string]map[string]float64

func (f figures) put(cell, metric string, value float64) {
	if f[cell] == nil {
		f[cell] = map[string]float64{}
	}
	f[cell][metric] = value
}

// id says which step it was.
type id struct {
	Round  int
	Nodes  int
	System string
	Step   string
}

// result is what a step came to, a line of a file. A step that failed may have figures of what it did before that.
type result struct {
	id
	Figures figures `json:",omitempty"`
	Error   string  `json:",omitempty"`
	Seconds float64
}

// about is the first line: when, with what and on what.
type about struct {
	Began    time.Time
	Commit   string
	Rounds   int
	Length   time.Duration
	Quick    bool
	Machine  string
	Software string
	Load     string // average, before
}

// line is one of the two.
type line struct {
	About  *about  `json:",omitempty"`
	Result *result `json:",omitempty"`
}

// results are those of one part, kept in a file as they come: a run that ends early can be continued, or reported as it is.
type results struct {
	about about
	byID  map[id]result // the last of each
	file  *os.File      // nil: only read
}

// readResults reads a file; nil when there is none.
func readResults(file string) (*results, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	r := &results{byID: map[id]result{}}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w; remove the line, or the file to begin anew", file, n, err)
		}
		if l.About != nil {
			r.about = *l.About
		}
		if l.Result != nil {
			r.byID[l.Result.id] = *l.Result
		}
	}
	return r, lines.Err()
}

// openResults goes on with a file or begins one; what an earlier run has left stays beside it.
func openResults(file string, resume bool, a about) (*results, error) {
	if resume {
		r, err := readResults(file)
		if err != nil {
			return nil, err
		}
		if r != nil {
			r.file, err = os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0o644)
			return r, err
		}
	}
	if err := os.Rename(file, file+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	r := &results{about: a, byID: map[id]result{}, file: f}
	return r, r.write(line{About: &a})
}

func (r *results) write(l line) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = r.file.Write(append(text, '\n'))
	return err
}

func (r *results) add(one result) error {
	r.byID[one.id] = one
	return r.write(line{Result: &one})
}

// done says whether a step need not be done again.
func (r *results) done(i id) bool {
	one, ok := r.byID[i]
	return ok && one.Error == ""
}

func (r *results) close() error { return r.file.Close() }
