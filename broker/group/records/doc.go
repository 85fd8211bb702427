// Package records encodes and decodes what is in __consumer_offsets, in Kafka's own formats, so that stock decoders read
// it: docs/formats.md lists them. The first two bytes of a key are its version, which says what kind of record it is.
//
// Start with kind.go. Decoders keep nothing of the bytes that they are given.
package records
