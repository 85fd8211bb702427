// Command compat runs the clients of other languages against real cairn nodes: the stock Java producer, consumer and console tools of
// Kafka 4.3.1, over one node and over three. `make compat` runs it.
//
// It builds the Maven project in java/, starts the nodes with the harness, and runs each client as a process of its own. What cannot run
// because Java or Maven is missing is named and counted as skipped; with CI=true a skip is a failure. The last line counts passed, failed
// and skipped checks; the exit code is 1 when any failed.
//
// Read first: main.go.
package main
