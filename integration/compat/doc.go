// Command compat runs clients and tools of Kafka, unchanged, against real cairn nodes: many clients that play the same scenarios on one cluster,
// the stock Java producer, consumer and console tools over one node and over three, and Kafka's tools for administration on three brokers with a
// controller of its own. `make compat` runs it with a few clients, `make compat-all` with all of them.
//
// A client is driven by a small program in its own language (clients/, driver.go), which carries out one order after the other; what is asked and
// what must come of it is in scenarios.go for all of them (scenarios_group.go, scenarios_admin.go). clients.go lists and installs them.
//
// It builds the Maven project in java/ and starts the nodes with the harness. A client of data is a process of its own; the tools run one after
// the other in one Java process (toolbox.go), and where cairn has a command of its own for the same, both must print the same lines in the same
// state (rows_elections.go). What cannot run because Java or Maven is missing is named and counted as skipped; with CI=true a skip is a failure.
// The last line counts the checks by how they ended, and docs/compatibility.md is written from them; the exit code is 1 when any failed.
// -defaults takes groups with the timeouts that nobody has set through the steps of groups (defaults.go, `make groups-defaults`).
// -only NAME plays one story and writes nothing; -only clients -clients NAME plays the
// scenarios of one client.
//
// Read first: main.go, then clients.go and stories.go.
package main
