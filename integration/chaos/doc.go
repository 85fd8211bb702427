// Chaos gives faults to a cluster of real processes under load, heals it, and has what clients saw judged.
//
// A round is one cluster: three brokers and three controllers whose network can be cut. Its Plan, made from a seed alone, says how the
// cluster is set up and what is done to it when: kills, freezes, cuts of one or both directions, slow links, rolling restarts, unclean
// elections, full, slow and broken disks, clocks that are set. Meanwhile writers with acks 0, 1 and all, writers of transactions, readers of either
// isolation level and the members of a group write down what they do and see. Then everything is healed and started; each partition has to serve within 30 seconds, the replicas have to be in sync, the losses reported; and package checker compares all of it.
// A round that fails leaves plan, history, end, logs and data in a directory, which -replay and -check take.
//
// The plan of a seed is always the same, what the processes make of it is not: a fault may need several runs of its seed to show.
//
// Concurrency: actions are carried out by one goroutine, the one of the round; each writer, reader and member has its own, which end with the load.
//
// Read first: plan.go, then round.go.
package main
