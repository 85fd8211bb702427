package tools

import (
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progressEvery is how often a bar is drawn again.
const progressEvery = 100 * time.Millisecond

// Units of progress. Bytes are shown as KiB, MiB and so on.
const (
	InBytes    = "bytes"
	InRecords  = "records"
	InReplicas = "replicas"
)

// Progress is a bar on standard error for a person who waits; it goes away when the work is done. A nil one shows nothing.
// Its methods are safe for concurrent use.
type Progress struct {
	bar   *progressbar.ProgressBar
	total int64

	mu    sync.Mutex
	done  int64     // guarded by mu
	drawn time.Time // guarded by mu
}

// Progress begins a bar, or returns nil where nobody sees it: standard error is no terminal. What is printed while it stands has to come after Clear.
func (o Output) Progress(what string, total int64, unit string) *Progress {
	if total <= 0 || !isTerminal(o.Err) {
		return nil
	}
	options := []progressbar.Option{
		progressbar.OptionSetWriter(o.Err), progressbar.OptionSetDescription(what), progressbar.OptionSetWidth(30),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetElapsedTime(false),
	}
	if unit == InBytes {
		options = append(options, progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true))
	} else {
		options = append(options, progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString(unit))
	}
	return &Progress{bar: progressbar.NewOptions64(total, options...), total: total}
}

// Add counts what was done since.
func (p *Progress) Add(n int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setLocked(p.done + n)
}

// Set counts what was done in all. It is cheap enough to be called for each record.
func (p *Progress) Set(n int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setLocked(n)
}

func (p *Progress) setLocked(n int64) {
	p.done = min(max(n, 0), p.total)
	if now := time.Now(); now.Sub(p.drawn) >= progressEvery {
		p.drawn = now
		_ = p.bar.Set64(p.done) // what cannot be drawn is lost: the result is what counts
	}
}

// Clear takes the bar off the line; the next step may draw it again.
func (p *Progress) Clear() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.bar.Clear()
}

// progressReader counts what is read.
type progressReader struct {
	io.Reader
	bar *Progress
}

func (r progressReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.bar.Add(int64(n))
	return n, err
}
