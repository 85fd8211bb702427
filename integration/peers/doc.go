// Command peers measures cairn, Apache Kafka and NATS JetStream side by side, `make bench-peers`: the same loads on the same machine in one run, the
// systems taking turns. It is a module of its own, so that what it needs of them is no dependency of cairn.
//
// A system (system.go) is one way to run one of them: on one node or three, safe or as its defaults have it. A round starts one system after the
// other with empty disks and takes it through steps (steps.go): all of them once in the matrix, those that matter most in several rounds, so that what
// the machine does meanwhile hits all alike. What a step came to is kept in a file at once (results.go), so that a run can be continued; one that fails
// leaves its reason, and the rest is measured all the same (run.go). Kafka is started from its published jars (kafka.go; kafka/pom.xml names them), the
// NATS server is this program again (nats.go), cairn is the binary (cairn.go).
//
// Clients are stock ones: franz-go for cairn and Kafka (wire.go), nats.go for NATS (jetstream.go). Cells (cells.go) are loads that both can carry; what has
// no counterpart is said in the report (report.go), which is a section of docs/benchmarks.md with plots beside it.
//
// Read first: system.go, then steps.go and cells.go.
package main
