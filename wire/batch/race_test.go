//go:build race

package batch

// raceEnabled: the race detector allocates on its own account and drops pooled objects, so memory is not measured.
const raceEnabled = true
