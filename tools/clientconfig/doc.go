// Package clientconfig is the configuration of Kafka's producer and consumer, by Kafka's names, with its defaults and its rules, for the
// clients inside cairn's tools.
//
// Nouns: Producer and Consumer (a checked configuration), the table of properties that each is read from. Parse checks and returns them, Options
// translates them for franz-go, Print lists all values as Kafka's clients do at their start.
//
// Where franz-go cannot do what a property says, Warnings tells. The package has no I/O and no state. Read producer.go first.
package clientconfig
