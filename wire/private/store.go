package private

import "github.com/twmb/franz-go/pkg/kmsg"

// The requests about the store of a broker, and their responses.
type (
	StoreRequest  = Request[StoreQuery]
	StoreResponse = Response[StoreAnswer]
)

// StoreQuery asks a broker how its store and the disk under it are.
type StoreQuery struct{}

// StoreAnswer answers it. Sizes are in bytes.
type StoreAnswer struct {
	// Level says what there is room for: 0 everything, 1 no records of clients, 2 no records at all, 3 nothing.
	Level   int32 `json:"level"`
	Free    int64 `json:"freeBytes"` // 0 with Total 0: the file system does not tell
	Total   int64 `json:"totalBytes"`
	MinFree int64 `json:"minFreeBytes"`
	Ballast int64 `json:"ballastBytes"` // 0: given up, or there is none
	// Damaged are the replicas whose stored data was found damaged and that are not in sync again.
	Damaged []TopicPartitions `json:"damaged"`
}

func (StoreQuery) key() int16              { return StoreKey }
func (StoreQuery) response() kmsg.Response { return &StoreResponse{} }
func (StoreAnswer) key() int16             { return StoreKey }
func (StoreAnswer) request() kmsg.Request  { return &StoreRequest{} }
