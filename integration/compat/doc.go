// Command compat runs the clients and tools of Kafka 4.3.1, unchanged, against real cairn nodes: the stock Java producer, consumer and console
// tools over one node and over three, and Kafka's tools for administration on three brokers with a controller of its own. `make compat` runs it.
//
// It builds the Maven project in java/ and starts the nodes with the harness. A client of data is a process of its own; the tools run one after
// the other in one Java process (toolbox.go), and where cairn has a command of its own for the same, both must print the same lines in the same
// state (rows_elections.go). What cannot run because Java or Maven is missing is named and counted as skipped; with CI=true a skip is a failure.
// The last line counts the checks by how they ended, and docs/compatibility.md is written from them; the exit code is 1 when any failed.
// -only NAME plays one story and writes nothing.
//
// Read first: main.go, then stories.go.
package main
