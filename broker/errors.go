package broker

import (
	"context"
	"errors"

	"cairn/broker/controller"
	"cairn/broker/coordinator"
	"cairn/broker/topicconfig"
	"cairn/broker/txn"
	"cairn/engine"
	"cairn/engine/producer"
	"cairn/raftgroup"
	"cairn/wire"
	"cairn/wire/batch"

	"github.com/twmb/franz-go/pkg/kerr"
)

// errorCode maps an internal error to Kafka's error code: 0 for nil, that of a *kerr.Error as it is, and
// UNKNOWN_SERVER_ERROR for what has none. It is the one place where this is decided; errors_test.go sees that no
// sentinel of the packages below is forgotten.
//
// An unknown outcome never maps to a code that says that nothing happened, and what may succeed elsewhere or later
// maps to a code that clients try again on.
func errorCode(err error) int16 {
	if err == nil {
		return 0
	}
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Code
	}
	var corrupt *engine.CorruptError
	if errors.As(err, &corrupt) {
		return kerr.KafkaStorageError.Code // damage here, not in what the client sent
	}
	for _, rows := range errorTables() {
		for _, row := range rows {
			if errors.Is(err, row.err) {
				return row.code.Code
			}
		}
	}
	return kerr.UnknownServerError.Code
}

type errorRow struct {
	err  error
	code *kerr.Error
}

// errorTables lists the rows in the order in which they are tried: an error that wraps several sentinels gets the code
// of the outermost decision, which is this package's own.
func errorTables() [][]errorRow {
	return [][]errorRow{coordinatorErrors, brokerErrors, batchErrors, replicationErrors, storageErrors, otherErrors}
}

// brokerErrors are this package's own.
var brokerErrors = []errorRow{
	{errNotLeader, kerr.NotLeaderForPartition},
	{errUnknownTopicID, kerr.UnknownTopicID},
	{errUnknownPartition, kerr.UnknownTopicOrPartition},
	{errTransactionalID, kerr.TransactionalIDAuthorizationFailed},
	{errRequiredAcks, kerr.InvalidRequiredAcks},
	{errInternalTopic, kerr.InvalidTopicException},
	{errDiskFull, kerr.KafkaStorageError},
	{errNotEnoughReplicas, kerr.NotEnoughReplicas},
	{errNotEnoughAfterAppend, kerr.NotEnoughReplicasAfterAppend},
	{errRequestTimedOut, kerr.RequestTimedOut},
	{errProposeTimeout, kerr.RequestTimedOut},
	{errFencedEpoch, kerr.FencedLeaderEpoch},
	{errUnknownEpoch, kerr.UnknownLeaderEpoch},
	{errOffsetRange, kerr.OffsetOutOfRange},
	{errOffsetNotYet, kerr.OffsetNotAvailable},
	{errTimestampVersion, kerr.UnsupportedVersion},
	{errDuplicatePartition, kerr.InvalidRequest},
	{errCompactOnly, kerr.PolicyViolation},
	{errDeleteRange, kerr.OffsetOutOfRange},
	{errDeletionsBusy, kerr.RequestTimedOut},
	{errSessionNotFound, kerr.FetchSessionIDNotFound},
	{errSessionEpoch, kerr.InvalidFetchSessionEpoch},
	{errSessionTopicIDs, kerr.FetchSessionTopicIDError},
	{errProducerIDInput, kerr.InvalidRequest},
	{errProducerIDsPending, kerr.CoordinatorLoadInProgress},
	{errProducerIDMapping, kerr.InvalidProducerIDMapping},
	{errNoTxnCoordinator, kerr.CoordinatorNotAvailable},
}

// coordinatorErrors come from coordinators. They wrap what the partition said, which is about the partition and not for the
// coordinator's client.
var coordinatorErrors = []errorRow{
	{coordinator.ErrNotCoordinator, kerr.NotCoordinator},
	{coordinator.ErrLoading, kerr.CoordinatorLoadInProgress},
	{coordinator.ErrUnavailable, kerr.CoordinatorNotAvailable},
	{coordinator.ErrTimeout, kerr.RequestTimedOut},
	{coordinator.ErrTooLarge, kerr.MessageTooLarge},
	{coordinator.ErrBusy, kerr.CoordinatorNotAvailable},
	{txn.ErrNeedProducerID, kerr.CoordinatorLoadInProgress},
	{txn.ErrRecord, kerr.KafkaStorageError},
}

// batchErrors refuse a client's batch.
var batchErrors = []errorRow{
	{batch.ErrInvalidRecord, kerr.InvalidRecord},
	{batch.ErrInvalidTimestamp, kerr.InvalidTimestamp},
	{batch.ErrMessageTooLarge, kerr.MessageTooLarge},
	{batch.ErrCorruptMessage, kerr.CorruptMessage},
	{batch.ErrUnsupportedCompression, kerr.UnsupportedCompressionType},
	{producer.ErrOutOfOrderSequence, kerr.OutOfOrderSequenceNumber},
	{producer.ErrInvalidProducerEpoch, kerr.InvalidProducerEpoch},
	{producer.ErrInvalidTxnState, kerr.InvalidTxnState},
	{producer.ErrCoordinatorFenced, kerr.TransactionCoordinatorFenced},
}

// replicationErrors come from a partition's Raft group and its host.
var replicationErrors = []errorRow{
	{raftgroup.ErrNotLeader, kerr.NotLeaderForPartition},
	{raftgroup.ErrClosed, kerr.NotLeaderForPartition}, // the replica has been stopped: somebody else leads
	{raftgroup.ErrTooLarge, kerr.MessageTooLarge},
	{raftgroup.ErrNotMember, kerr.NotLeaderForPartition},
	{raftgroup.ErrRejected, kerr.UnknownServerError},
	{raftgroup.ErrUnknown, kerr.RequestTimedOut},
	{raftgroup.ErrUnknownPeer, kerr.UnknownServerError},
}

// storageErrors come from the engine.
var storageErrors = []errorRow{
	{engine.ErrOffsetOutOfRange, kerr.OffsetOutOfRange},
	{engine.ErrCorruptRow, kerr.KafkaStorageError},
	{engine.ErrMalformed, kerr.KafkaStorageError},
	{engine.ErrStoreDamaged, kerr.KafkaStorageError},
	{engine.ErrNoEntry, kerr.KafkaStorageError},
	{engine.ErrNoPartition, kerr.NotLeaderForPartition},
	{engine.ErrBound, kerr.KafkaStorageError},
	{engine.ErrBeyondBase, kerr.KafkaStorageError},
	{engine.ErrIncomplete, kerr.KafkaStorageError},
	{engine.ErrNotOwner, kerr.KafkaStorageError},
	{engine.ErrClosed, kerr.NotLeaderForPartition}, // the broker is stopping
	{engine.ErrReleased, kerr.NotLeaderForPartition},
	{engine.ErrWrongNode, kerr.KafkaStorageError},
	{engine.ErrWrongCluster, kerr.KafkaStorageError},
	{engine.ErrNewerFormat, kerr.KafkaStorageError},
	{engine.ErrCheckpoint, kerr.KafkaStorageError},
	{engine.ErrDataDirInUse, kerr.KafkaStorageError},
	{engine.ErrDataDirBad, kerr.KafkaStorageError},
}

// otherErrors come from the controller's client, configs and requests.
var otherErrors = []errorRow{
	{controller.ErrClosed, kerr.NotController},
	{controller.ErrSuperseded, kerr.FencedLeaderEpoch},
	{controller.ErrRejected, kerr.StaleBrokerEpoch},
	{topicconfig.ErrUnknown, kerr.InvalidConfig},
	{topicconfig.ErrInvalid, kerr.InvalidConfig},
	{wire.ErrUnsupportedVersion, kerr.UnsupportedVersion},
	{wire.ErrUnknownKey, kerr.InvalidRequest},
	{wire.ErrMalformed, kerr.InvalidRequest},
	{wire.ErrFrameLength, kerr.InvalidRequest},
	{wire.ErrConnClosed, kerr.NetworkException},
	{wire.ErrNotSent, kerr.NetworkException},
	{context.DeadlineExceeded, kerr.RequestTimedOut},
	{context.Canceled, kerr.RequestTimedOut},
}
