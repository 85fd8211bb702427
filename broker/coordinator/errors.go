package coordinator

import "errors"

var (
	// ErrNotCoordinator: this broker does not lead the partition, or no longer. What was appended may yet hold.
	ErrNotCoordinator = errors.New("not the coordinator")
	// ErrLoading: this broker leads the partition, and is still reading it; or too many operations wait for it.
	ErrLoading = errors.New("the coordinator is loading")
	// ErrUnavailable: the partition takes no records at present, as with too few replicas in sync. Nothing was appended.
	ErrUnavailable = errors.New("the coordinator is not available")
	// ErrTimeout: what was appended is not committed in time. It may yet hold.
	ErrTimeout = errors.New("the operation was not committed in time")
	// ErrTooLarge: the operation's records do not fit into one batch of the topic. Nothing was appended.
	ErrTooLarge = errors.New("the operation is too large for the topic's max.message.bytes")
	// ErrBusy: the partition has no room for another batch at the moment. Nothing was appended. It is between Reign and the
	// runtime; replies do not get it.
	ErrBusy = errors.New("the partition has no room at the moment")
)
