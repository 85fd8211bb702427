//go:build !race

package raftgroup

const raceDetector = false
