// Package integration tests the cairn binary with real processes, real clients and real signals. It has tests only; what starts and
// watches the processes is in harness, what makes load and compares what was acknowledged with what can be read is in workload, the
// measuring program is bench, and compat holds the clients of other languages.
//
// The tests run when CAIRN_INTEGRATION is set (`make integration`), in short form unless CAIRN_LONG is set too. They need kcat. A test that
// fails prints its seed and keeps the data directories and logs of its nodes; the path is in its last lines. CAIRN_LOG_LEVEL=debug has the nodes log more, CAIRN_SEED repeats a run,
// CAIRN_TEST_DIR is where the directories are made, CAIRN_BINARY tests another binary.
//
// Concurrency: tests run one after the other, since each wants the machine for itself, but for those that wait for most of their time, which
// run in pairs at the end. Every node is stopped, by its process id, at the end of its test.
//
// Read first: harness/cluster.go, then single_test.go.
package integration
