// Package bin reads and writes the binary form of stored values: varints as in encoding/binary, big-endian fixed
// integers, and length-prefixed bytes. Every value has exactly one encoding: the Reader refuses varints that are
// longer than need be and bytes that are left over, so decoding and encoding again gives the same bytes.
//
// A Reader keeps its first error and returns zero values from then on, so that a decoder reads all fields and
// checks once, with Done. It allocates nothing itself, and Count bounds what a decoder allocates by the bytes that
// are really there. It is for trusted and damaged input alike: no input makes it panic.
package bin
