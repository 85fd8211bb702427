// Package clock is what the product reads the time from: Now stands in for time.Now in broker, engine and raftgroup, which a test of the tree
// checks.
//
// A time has two readings. The wall clock is what records, files and people get; somebody may set it, forwards or back, by hours. The monotonic
// one, which time.Time carries along and Sub, Before and time.Since use, does not care. So whatever waits, holds or ends after some time is
// decided between two times from Now that were never taken apart: sessions, leases, timeouts. What outlives a process has the wall clock alone
// (UnixMilli), and who compares such times has to bear a step: see docs/reliability.md.
//
// With the build tag cairn_faults the wall clock can be set by an order, see package faults, while the monotonic one goes on. Without it Now is
// time.Now.
//
// Safe for concurrent use; it starts nothing. Read first: clock.go.
package clock
