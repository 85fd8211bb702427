// Package rules names the rules of replication (docs/generations.md) that a test can switch off, to show that the
// random walk of broker/walk notices. The zero value keeps all of them. Only tests switch one off: a test of this package
// reads the sources to see to that.
package rules
