package tools

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Output is where a command prints. Results go to Out, everything said about them to Err.
type Output struct {
	Out  io.Writer
	Err  io.Writer
	JSON bool // one JSON value (or one per record) on Out instead of Kafka's lines
}

// Standard is the output of a process.
func Standard(asJSON bool) Output { return Output{Out: os.Stdout, Err: os.Stderr, JSON: asJSON} }

// Warn prints a warning on Err.
func (o Output) Warn(format string, args ...any) { o.warn(format, args...) }

// Note prints a remark about the result on Err.
func (o Output) Note(format string, args ...any) { o.note(format, args...) }

// WriteJSON prints v as one line on Out.
func (o Output) WriteJSON(v any) error { return o.writeJSON(v) }

func (o Output) warn(format string, args ...any) {
	// A warning that cannot be printed has no other place to go.
	_, _ = fmt.Fprintf(o.Err, "WARNING: "+format+"\n", args...)
}

// note prints a remark about the result on Err.
func (o Output) note(format string, args ...any) {
	_, _ = fmt.Fprintf(o.Err, format+"\n", args...)
}

// IsTerminal reports whether what is written to w is seen by a person at once.
func IsTerminal(w io.Writer) bool { return isTerminal(w) }

// isTerminal reports whether f is a terminal, that is, a person sits there.
func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// slowAnswer is after how long a command says what it waits for.
const slowAnswer = 2 * time.Second

// noteAfter prints the note unless done is called before that time. After done it prints nothing any more.
func (o Output) noteAfter(d time.Duration, format string, args ...any) (done func()) {
	printed := make(chan struct{})
	timer := time.AfterFunc(d, func() {
		defer close(printed)
		o.note(format, args...)
	})
	return func() {
		if !timer.Stop() {
			<-printed
		}
	}
}
