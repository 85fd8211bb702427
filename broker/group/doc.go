// Package group is the state of the group coordinator for one partition of __consumer_offsets: groups of both protocols
// and the offsets that they have committed.
//
// The nouns: Machine, a coordinator.Machine; group, which is a classic one, a consumer one (KIP-848) or nothing but
// offsets; member; committed offset. A classic group has two layers: what its last record says, which every replica has,
// and the members with their waiting requests and deadlines, which the leader of the partition alone has and which is made
// of the first when it is elected. Offsets and consumer groups are what the records say.
//
// A Machine is pure: it holds no clock, does no I/O and starts nothing; the runtime in broker/coordinator calls it from
// one goroutine at a time. Its operations take the requests as they were parsed and answer through Effects.Then.
// The handlers in package broker check what concerns topics and forward the rest.
//
// Read machine.go first, then classic.go.
package group
