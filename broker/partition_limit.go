package broker

import "fmt"

// maxRequestPartitions bounds the partitions that one request may name. What a partition costs here is many times its
// bytes in the request, and no broker hosts so many.
const maxRequestPartitions = 50_000

// refuseTooMany closes the connection of a request that names too many partitions, and reports whether it did.
func refuseTooMany(r *request, partitions int) bool {
	if partitions <= maxRequestPartitions {
		return false
	}
	r.closeConnection(fmt.Errorf("request of key %d names %d partitions, at most %d are taken", r.hdr.Key, partitions, maxRequestPartitions))
	return true
}
