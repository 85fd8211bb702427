// Package topicconfig is the table of Kafka's topic configs: their names, types, defaults, limits and the broker
// properties that set their defaults, and the reading of their values into typed Settings.
//
// Nouns: a Def is one config of the table. A Layer is the configured values of one source (a topic's dynamic configs, a
// broker's, the cluster's, the broker's properties file). An Entry is one config with its effective value and where that
// comes from. Settings are the effective values, parsed.
//
// Everything here is a pure function over an unchangeable table: safe from any goroutine, no lifecycle. The package does
// not store configs (the controller does) and does not act on them (package broker does). Def.NoEffect says which of them
// cairn accepts without doing anything.
//
// Read table.go first.
package topicconfig
