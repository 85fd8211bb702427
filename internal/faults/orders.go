package faults

import (
	"encoding/json"
	"os"
)

// Env is the environment variable with the name of the file that has the orders; no variable: none will ever come. A relative name is one in the
// directory in which the process started.
const Env = "CAIRN_FAULTS"

// Orders are all faults that a process is to have. The zero value is health.
type Orders struct {
	ClockMs int64 `json:"clockMs,omitempty"` // by how much the wall clock is wrong; whole seconds
	Disk    Disk  `json:"disk"`
}

// Disk is what is wrong with a disk.
type Disk struct {
	// Full: no more than LeftBytes more can be written, and what is removed gives its bytes back. Told: the file system says so when it is
	// asked how much room there is; else, as with a quota, writes find out.
	Full      bool  `json:"full,omitempty"`
	Told      bool  `json:"told,omitempty"`
	LeftBytes int64 `json:"leftBytes,omitempty"`
	// SlowMs is how much longer each write and each sync takes.
	SlowMs int64 `json:"slowMs,omitempty"`
	// Fail has each operation of that kind fail with EIO: FailWrite or FailSync.
	Fail string `json:"fail,omitempty"`
}

// What may fail.
const (
	FailWrite = "write"
	FailSync  = "sync"
)

// TakenFile is there once a process takes the orders of the file.
func TakenFile(orders string) string { return orders + ".taken" }

// HitFile is there once an operation has failed by the orders of the file; it has a line for each of the first ones, with what it was done to.
func HitFile(orders string) string { return orders + ".hit" }

// Give writes orders to a file, whole or not at all.
func Give(file string, o Orders) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".tmp", text, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}
