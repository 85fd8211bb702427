// Package harness builds the binary under test and lends tests and measurements the processes of package nodes, which the lab of the
// product starts its clusters with too.
//
// Read first: binary.go.
package harness
