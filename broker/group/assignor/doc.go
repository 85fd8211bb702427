// Package assignor divides the partitions of the topics that a consumer group reads among its members, as the group
// coordinator does it in the consumer protocol (KIP-848).
//
// The nouns: Group, which is what is to be divided and who owned what so far, Member, Partitions, and the assignors
// uniform and range, which Lookup finds by the names that Kafka gave them. They are pure functions: the same group gives
// the same answer, on every replica and in every run.
//
// It does not know of epochs, of revocation or of who has let go of a partition; that is package group.
//
// Read assignor.go first.
package assignor
