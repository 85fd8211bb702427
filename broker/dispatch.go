package broker

import (
	"fmt"

	"cairn/broker/controller"
	"cairn/wire"
	"cairn/wire/private"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handler handles one kind of request. It runs on the goroutine of the request's connection and answers exactly once,
// then or later. It may wait for the controller, since that delays its own connection only; it must not wait for
// replication, data or a timer.
type handler func(b *Broker, r *request)

// brokerTable has the requests that broker listeners serve, by API key. wire's table has their versions.
func brokerTable() map[kmsg.Key]handler {
	return map[kmsg.Key]handler{
		kmsg.Produce:                 handleProduce,
		kmsg.Fetch:                   handleFetch,
		kmsg.ListOffsets:             handleListOffsets,
		kmsg.Metadata:                handleMetadata,
		kmsg.FindCoordinator:         handleFindCoordinator,
		kmsg.ApiVersions:             handleAPIVersions,
		kmsg.CreateTopics:            handleCreateTopics,
		kmsg.DeleteTopics:            handleForward,
		kmsg.InitProducerID:          handleInitProducerID,
		kmsg.OffsetForLeaderEpoch:    handleOffsetForLeaderEpoch,
		kmsg.DescribeConfigs:         handleDescribeConfigs,
		kmsg.AlterConfigs:            handleForward,
		kmsg.CreatePartitions:        handleForward,
		kmsg.IncrementalAlterConfigs: handleForward,
		kmsg.DescribeCluster:         handleDescribeCluster,
		kmsg.DescribeTopicPartitions: handleDescribeTopicPartitions,
		kmsg.ConsumerGroupHeartbeat:  handleConsumerGroupHeartbeat,
		kmsg.ConsumerGroupDescribe:   handleConsumerGroupDescribe,
		kmsg.UpdateFeatures:          handleForward,
		kmsg.WriteTxnMarkers:         handleWriteTxnMarkers,
		kmsg.DescribeProducers:       handleDescribeProducers,
		kmsg.AddPartitionsToTxn:      handleAddPartitionsToTxn,
		kmsg.AddOffsetsToTxn:         handleAddOffsetsToTxn,
		kmsg.EndTxn:                  handleEndTxn,
		kmsg.DescribeTransactions:    handleDescribeTransactions,
		kmsg.ListTransactions:        handleListTransactions,

		kmsg.OffsetCommit:    handleOffsetCommit,
		kmsg.OffsetFetch:     handleOffsetFetch,
		kmsg.OffsetDelete:    handleOffsetDelete,
		kmsg.TxnOffsetCommit: handleTxnOffsetCommit,
		kmsg.JoinGroup:       handleJoinGroup,
		kmsg.SyncGroup:       handleSyncGroup,
		kmsg.Heartbeat:       handleHeartbeat,
		kmsg.LeaveGroup:      handleLeaveGroup,
		kmsg.DescribeGroups:  handleDescribeGroups,
		kmsg.ListGroups:      handleListGroups,
		kmsg.DeleteGroups:    handleDeleteGroups,

		kmsg.ElectLeaders:               handleElectLeaders,
		kmsg.AlterPartitionAssignments:  handleForward,
		kmsg.ListPartitionReassignments: handleForward,
		kmsg.DescribeLogDirs:            handleDescribeLogDirs,
		kmsg.DeleteRecords:              handleDeleteRecords,
		kmsg.DescribeQuorum:             handleDescribeQuorum,

		logPrefixKey:                    handleLogPrefix,
		kmsg.Key(private.ReplicasKey):   handleDescribeReplicas,
		kmsg.Key(private.ElectionsKey):  handlePreviewElections,
		kmsg.Key(private.LossesKey):     handleDescribeLosses,
		kmsg.Key(private.QuarantineKey): handleReadQuarantine,
		kmsg.Key(private.RemovalKey):    handleRemoveQuarantine,
		kmsg.Key(private.RecoveredKey):  handleNoteRecovered,
		kmsg.Key(private.RaftLogKey):    handleReadRaftLog,
		kmsg.Key(private.InspectionKey): handleInspect,
		kmsg.Key(private.StoreKey):      handleDescribeStore,
		kmsg.Key(private.CheckpointKey): handleCheckpoint,
	}
}

// controllerTable has the requests that controller listeners serve.
func controllerTable() map[kmsg.Key]handler {
	table := map[kmsg.Key]handler{
		kmsg.ApiVersions:             handleAPIVersions,
		kmsg.DescribeCluster:         handleDescribeCluster,
		kmsg.CreateTopics:            handleQuorum,
		kmsg.DeleteTopics:            handleQuorum,
		kmsg.CreatePartitions:        handleQuorum,
		kmsg.AlterConfigs:            handleQuorum,
		kmsg.IncrementalAlterConfigs: handleQuorum,
		kmsg.BrokerRegistration:      handleQuorum,
		kmsg.BrokerHeartbeat:         handleQuorum,
		kmsg.AllocateProducerIDs:     handleQuorum,
		kmsg.AlterPartition:          handleQuorum,
		kmsg.UpdateFeatures:          handleQuorum,

		kmsg.ElectLeaders:               handleQuorum,
		kmsg.AlterPartitionAssignments:  handleQuorum,
		kmsg.ListPartitionReassignments: handleQuorum,
		kmsg.DescribeQuorum:             handleDescribeQuorum,

		logPrefixKey:                    handleLogPrefix,
		kmsg.Key(private.ReplicasKey):   handleDescribeReplicas,
		kmsg.Key(private.ElectionsKey):  handleQuorum,
		kmsg.Key(private.LossesKey):     handleDescribeLosses,
		kmsg.Key(private.QuarantineKey): handleReadQuarantine,
		kmsg.Key(private.RemovalKey):    handleRemoveQuarantine,
	}
	for _, p := range controller.PrivateAPIs() {
		table[kmsg.Key(p.Key)] = handleQuorum
	}
	return table
}

// privateAPIs are the requests that Kafka does not have: those between nodes and those of our own tools.
func privateAPIs() []wire.PrivateAPI {
	return append(append(controller.PrivateAPIs(), private.APIs()...), logPrefixAPI())
}

// dispatch hands the request to its handler. A key that the listener does not offer closes the connection, as in Kafka.
func (b *Broker) dispatch(r *request) {
	table := b.brokerHandlers
	if r.conn.listener.controller {
		table = b.controllerHandlers
	}
	h, ok := table[kmsg.Key(r.hdr.Key)]
	if !ok {
		r.closeConnection(fmt.Errorf("%w: %d on listener %s", wire.ErrUnknownKey, r.hdr.Key, r.listenerName()))
		return
	}
	h(b, r)
}

// handleQuorum has the controller of this process handle the request. It blocks until the change is committed and
// applied, or refused.
func handleQuorum(b *Broker, r *request) { r.reply(b.askQuorum(r)) }

// askQuorum is the answer of the controller of this process.
func (b *Broker) askQuorum(r *request) kmsg.Response {
	s := &r.conn.session
	if s.quorum == nil {
		s.quorum = b.quorum.NewConn()
	}
	return s.quorum.Handle(r.conn.context, r.msg)
}
