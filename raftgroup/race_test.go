//go:build race

package raftgroup

import "time"

// raceDetector says that times are not worth comparing.
const raceDetector = true

// patience is the bound of every wait in these tests; only reached when something is broken.
const patience = 2 * time.Minute
