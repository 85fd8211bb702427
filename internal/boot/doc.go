// Package boot tells the runs of the machine apart, from one start of it to the next.
package boot
