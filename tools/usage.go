package tools

// UsageError is a use of options that makes no sense, whatever the cluster is like; the message tells what would.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the error that was found in the options.
func (e UsageError) Unwrap() error { return e.Err }
