// Package wire speaks Kafka's protocol below the meaning of requests: frames, headers, the table of offered API keys
// and versions, requests and responses.
//
// # Nouns
//
//   - frame: a length prefix and what follows; ReadFrame reads one without trusting the announced length.
//   - Table, API: what is offered, in which versions; a node adds its private requests to Kafka's.
//   - layout: how a request lies on the wire, to measure what decoding will cost (layout_gen.go is generated).
//   - Header, ParseRequest, AppendResponse: requests and responses themselves are kmsg's types.
//   - FetchResponse: the one response written by hand, as a list of buffers in which record batches lie uncopied.
//   - Conn: the client's end of a connection between nodes.
//
// # Concurrency and lifecycle
//
// Everything but Conn is a function of its arguments. A Conn has two goroutines, one that writes requests and one that
// reads responses, started by NewConn and ended by Close or by an error of the connection; Close waits for them.
//
// # What it does not do
//
// It does not listen, dispatch, or know what a request means; it does not check record batches (see wire/batch).
//
// Read api.go first, then request.go and response.go.
package wire
