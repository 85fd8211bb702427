// Package archtest keeps the shape of the source tree: it has no code of its own, only a Go test over all other packages.
//
// It checks the one direction of imports that docs/design.md describes, the length of files and functions, that each package has a
// doc.go, and that nothing but tests waits by sleeping. The test reads the sources of the module it stands in, starts nothing and writes
// nothing. It does not judge formatting or correctness: `make lint` runs the linters for that.
//
// Read first: arch_test.go.
package archtest
