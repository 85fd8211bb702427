package private

import (
	"encoding/json"
	"fmt"

	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The API keys, from wire.PrivateKeyMin+100 on.
const (
	ReplicasKey int16 = wire.PrivateKeyMin + 100 + iota
	ElectionsKey
	LossesKey
	QuarantineKey
	RemovalKey
	RecoveredKey
	RaftLogKey
	InspectionKey
	StoreKey
	CheckpointKey
)

// query is the body of a request: it knows its key and its answer.
type query interface {
	key() int16
	response() kmsg.Response
}

// answer is the body of a response.
type answer interface {
	key() int16
	request() kmsg.Request
}

// Request is a request with the body Q. It implements kmsg.Request.
type Request[Q query] struct {
	Version int16
	Body    Q
}

// Key and the methods below implement kmsg.Request.
func (r *Request[Q]) Key() int16                  { return r.Body.key() }
func (r *Request[Q]) MaxVersion() int16           { return 0 }
func (r *Request[Q]) SetVersion(v int16)          { r.Version = v }
func (r *Request[Q]) GetVersion() int16           { return r.Version }
func (r *Request[Q]) IsFlexible() bool            { return true }
func (r *Request[Q]) ResponseKind() kmsg.Response { return r.Body.response() }
func (r *Request[Q]) AppendTo(dst []byte) []byte  { return appendJSON(dst, r.Body) }
func (r *Request[Q]) ReadFrom(src []byte) error   { return json.Unmarshal(src, &r.Body) }

// Response is a response with the body A. It implements kmsg.Response.
type Response[A answer] struct {
	Version int16
	Body    A
}

// Key and the methods below implement kmsg.Response.
func (r *Response[A]) Key() int16                 { return r.Body.key() }
func (r *Response[A]) MaxVersion() int16          { return 0 }
func (r *Response[A]) SetVersion(v int16)         { r.Version = v }
func (r *Response[A]) GetVersion() int16          { return r.Version }
func (r *Response[A]) IsFlexible() bool           { return true }
func (r *Response[A]) RequestKind() kmsg.Request  { return r.Body.request() }
func (r *Response[A]) AppendTo(dst []byte) []byte { return appendJSON(dst, r.Body) }
func (r *Response[A]) ReadFrom(src []byte) error  { return json.Unmarshal(src, &r.Body) }

// appendJSON needs no error: the bodies are structs of plain values.
func appendJSON(dst []byte, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("BUG: encode %T: %v", v, err))
	}
	return append(dst, b...)
}

// APIs are the rows for wire.NewTable.
func APIs() []wire.PrivateAPI {
	row := func(name string, newRequest func() kmsg.Request) wire.PrivateAPI {
		return wire.PrivateAPI{Key: newRequest().Key(), Name: name, Clients: true, New: newRequest}
	}
	return []wire.PrivateAPI{
		row("DescribeReplicas", func() kmsg.Request { return &ReplicasRequest{} }),
		row("PreviewElections", func() kmsg.Request { return &ElectionsRequest{} }),
		row("DescribeLosses", func() kmsg.Request { return &LossesRequest{} }),
		row("ReadQuarantine", func() kmsg.Request { return &QuarantineRequest{} }),
		row("RemoveQuarantine", func() kmsg.Request { return &RemovalRequest{} }),
		row("NoteRecovered", func() kmsg.Request { return &RecoveredRequest{} }),
		row("ReadRaftLog", func() kmsg.Request { return &RaftLogRequest{} }),
		row("InspectPartition", func() kmsg.Request { return &InspectionRequest{} }),
		row("DescribeStore", func() kmsg.Request { return &StoreRequest{} }),
		row("MakeCheckpoint", func() kmsg.Request { return &CheckpointRequest{} }),
	}
}
