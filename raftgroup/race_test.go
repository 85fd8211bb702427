//go:build race

package raftgroup

// raceDetector says that times are not worth comparing.
const raceDetector = true
