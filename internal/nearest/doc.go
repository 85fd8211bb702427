// Package nearest finds the name that was meant by one with a typing error.
//
// Everything here is pure and safe for concurrent use.
package nearest
