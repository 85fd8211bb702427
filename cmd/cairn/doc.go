// Command cairn is the broker and its tools in one binary.
//
// Each subcommand has a file of its own that only turns flags into the typed options of packages broker and tools; nothing else of the
// product knows about flags. Exit codes: 0 done; 1 failed, or not all done; 2 wrong use of the command line, nothing done.
//
// Concurrency: main cancels one context at SIGINT, SIGTERM or SIGHUP (unless that is ignored); a second signal kills the process at once.
//
// Read first: main.go.
package main
