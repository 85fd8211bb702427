package private

import "github.com/twmb/franz-go/pkg/kmsg"

// The requests about the store of a broker, and their responses.
type (
	StoreRequest  = Request[StoreQuery]
	StoreResponse = Response[StoreAnswer]

	CheckpointRequest  = Request[CheckpointQuery]
	CheckpointResponse = Response[CheckpointAnswer]
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
	// Of the scrubber, which reads all that is stored: when the run under way began and the last one ended, ms since 1970, 0: none; how
	// many ended, and how much was read, since the start of the process.
	ScrubBeganMs int64 `json:"scrubBeganMs"`
	ScrubEndedMs int64 `json:"scrubEndedMs"`
	Scrubs       int64 `json:"scrubs"`
	ScrubBytes   int64 `json:"scrubBytes"`
}

// CheckpointQuery has a broker copy its data directory to one that is not there yet, an absolute path on its machine.
type CheckpointQuery struct {
	Dir string `json:"dir"`
}

// CheckpointAnswer answers it, once the copy is whole.
type CheckpointAnswer struct {
	Status
}

func (StoreQuery) key() int16              { return StoreKey }
func (StoreQuery) response() kmsg.Response { return &StoreResponse{} }
func (StoreAnswer) key() int16             { return StoreKey }
func (StoreAnswer) request() kmsg.Request  { return &StoreRequest{} }

func (CheckpointQuery) key() int16              { return CheckpointKey }
func (CheckpointQuery) response() kmsg.Response { return &CheckpointResponse{} }
func (CheckpointAnswer) key() int16             { return CheckpointKey }
func (CheckpointAnswer) request() kmsg.Request  { return &CheckpointRequest{} }
