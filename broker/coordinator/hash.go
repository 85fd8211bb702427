package coordinator

import "unicode/utf16"

// PartitionOf is the partition of an internal topic that coordinates key: Java's String.hashCode, which is over UTF-16
// units and wraps at 32 bits, without its sign.
func PartitionOf(key string, partitions int32) int32 {
	if partitions <= 0 {
		return 0
	}
	var h int32
	for _, r := range key {
		if r1, r2 := utf16.EncodeRune(r); r1 != '\uFFFD' {
			h = 31*h + r1
			h = 31*h + r2
			continue
		}
		h = 31*h + r
	}
	return (h & 0x7fffffff) % partitions
}
