// Package bench is the load generator behind `cairn bench` and `cairn verify`: producers, a consumer, a measure of the way from end to end, and a
// check that what was acknowledged is what is read.
//
// Nouns: a worker is one producing client with a payload and a pace; its meter counts what was answered and how long that took; the reporter takes
// windows from all meters at each interval, prints them as Kafka's performance tools do, and keeps them for the time line and the plot; the verdict
// says what became of each record.
//
// Closed loop: latency counts from the call that hands a record to the client, as with Kafka's tool. Open loop: from the moment when the pace wanted
// the record to be sent, so that a stall is charged to all records that it held up.
//
// Each meter has one writer, the client's own callback goroutine, beside the reporter. Run functions return when all their goroutines have ended.
// Read produce.go first.
package bench
