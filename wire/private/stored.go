package private

import (
	"encoding/json"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The requests and responses about what a broker has stored of a partition.
type (
	RaftLogRequest     = Request[RaftLogQuery]
	RaftLogResponse    = Response[RaftLogAnswer]
	InspectionRequest  = Request[InspectionQuery]
	InspectionResponse = Response[InspectionAnswer]
)

// RaftLogQuery asks a broker for the Raft log of a partition from an index on. The answer has at most MaxEntries entries.
type RaftLogQuery struct {
	Topic      string        `json:"topic"`
	Partition  int32         `json:"partition"`
	From       ids.RaftIndex `json:"from"`
	MaxEntries int           `json:"maxEntries"`
}

// RaftLogAnswer answers it. State is an engine.RaftView, each of Entries an engine.EntryView. More: there is more behind the last entry.
type RaftLogAnswer struct {
	Status
	State   json.RawMessage   `json:"state,omitempty"`
	Entries []json.RawMessage `json:"entries"`
	More    bool              `json:"more,omitempty"`
}

// InspectionQuery has a broker read all that it has stored of a partition, and check that it agrees.
type InspectionQuery struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// InspectionAnswer answers it; Found is an engine.Verification.
type InspectionAnswer struct {
	Status
	Found json.RawMessage `json:"found,omitempty"`
}

func (RaftLogQuery) key() int16                 { return RaftLogKey }
func (RaftLogQuery) response() kmsg.Response    { return &RaftLogResponse{} }
func (RaftLogAnswer) key() int16                { return RaftLogKey }
func (RaftLogAnswer) request() kmsg.Request     { return &RaftLogRequest{} }
func (InspectionQuery) key() int16              { return InspectionKey }
func (InspectionQuery) response() kmsg.Response { return &InspectionResponse{} }
func (InspectionAnswer) key() int16             { return InspectionKey }
func (InspectionAnswer) request() kmsg.Request  { return &InspectionRequest{} }
