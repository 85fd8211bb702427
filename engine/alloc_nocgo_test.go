//go:build !cgo

package engine

// storeReadAllocs bounds the allocations of a read of 1,024 batches from the store: without cgo Pebble's blocks are Go's.
const storeReadAllocs = 160
