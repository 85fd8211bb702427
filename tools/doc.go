// Package tools holds the commands of the cairn binary other than the broker itself, as functions with typed options: the administration of topics, configs,
// groups, transactions and replicas, a console producer and consumer, the status of a cluster, and the dump and copies of what brokers store.
//
// Nouns: a Connection says how a cluster is reached; an Output says where a command prints and whether for people (Kafka's own
// lines) or for programs (JSON); each command has one options struct and one function of the form
//
//	func Produce(ctx context.Context, conn Connection, opts ProduceOptions, out Output) error
//
// which returns when the command is done. An error is meant for the person at the terminal: it says what to do next. Options that make no
// sense are a UsageError.
//
// Concurrency: a function starts what it needs and waits for it; nothing outlives it, save the one goroutine that may sit in a
// read of standard input, which no signal can end. Options are not changed and may be reused.
//
// What it does not do: parse flags (cmd/cairn does), start brokers, or measure (tools/bench).
//
// Read first: connection.go, then produce.go or topics.go.
package tools
