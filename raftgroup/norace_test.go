//go:build !race

package raftgroup

import "time"

const raceDetector = false

const patience = 30 * time.Second
