// Package capture is a stand-in for a broker, for making golden files: it answers just what a producer or consumer
// asks before it sends records or fetches, and keeps every frame. One topic name in, one partition out; nothing is
// stored. It is used by tests that are run with their update flag, and by nothing else.
package capture
