// Package broker is the Kafka-facing half of cairn: it accepts connections, takes requests apart, runs the handler
// of each API key, and answers in request order.
//
// # Nouns
//
//   - Config: the typed form of a server.properties file; its names are Kafka's.
//   - Broker: what the handlers of one process share. Node assembles one, with the roles the configuration names.
//   - listener, conn, request: a bound address, one client's connection, one request on it until it is answered.
//   - partition, replicaManager: one hosted replica and the set of them, driven by the metadata image.
//   - purgatory: requests that wait for replication, for data or for their timeout; memory, not goroutines.
//
// # Concurrency
//
// Each connection has a reader goroutine, which also runs the handlers one after another, and a writer goroutine,
// which encodes and sends answers in request order. A handler never waits for replication or for a timer: it parks the
// request, and whoever completes it calls request.reply from any goroutine. Requests that the controller must decide,
// and the first of a transaction in a partition, block their own connection only.
//
// # Lifecycle
//
// Run starts everything a process needs and returns after the context is cancelled and every goroutine has ended.
//
// # What it does not do
//
// No storage, no Raft (packages engine and raftgroup), no decision about cluster state (broker/controller), no byte
// layout (wire). It knows no command line: cmd does.
//
// Read node.go first for the assembly, then conn.go for a request's way in and out, then produce.go and fetch.go.
package broker
