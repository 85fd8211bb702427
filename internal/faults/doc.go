// Package faults lets a test give faults to the disk and the clock of a process from outside.
//
// Orders say what is wrong with a node's disk and clock; whoever gives them writes them to a file (Give). A process that was built with the tag
// cairn_faults, and with Env in its environment, reads that file every few milliseconds and does what it says: engine asks Write, Sync and Room
// before it touches the disk, internal/clock asks Clock. Next to the file it says that it takes orders (TakenFile), and at which file a failure has
// befallen it (HitFile). What has no tag has none of that code: only files with the tag import this package, but for tests and package
// integration/chaos, which gives orders.
//
// One goroutine reads the file, from the first question to the end of the process. Safe for concurrent use. Read first: orders.go.
package faults
