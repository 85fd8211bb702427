package txn

import (
	"encoding/binary"
	"errors"
	"fmt"

	"cairn/broker/coordinator"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrRecord says that a record of __transaction_state cannot be understood.
var ErrRecord = errors.New("record of the transaction log")

const (
	keyVersion      = 0
	valueVersionMax = 1
	// tagLastEpoch is a tagged field that Kafka does not have and passes over: Transaction.LastEpoch as int16. Kafka forgets
	// it with the coordinator, and a repeated InitProducerId is then fenced.
	tagLastEpoch uint32 = 10000
)

// encode makes the record of a transactional id in the form that the level of transaction.version calls for.
func encode(id string, t *Transaction, level int16) coordinator.Record {
	value := kmsg.NewTxnMetadataValue()
	value.ProducerID, value.ProducerEpoch, value.TimeoutMillis = t.ProducerID, t.Epoch, t.TimeoutMs
	value.State = kmsg.TransactionState(t.State)
	value.LastUpdateTimestamp, value.StartTimestamp = t.UpdateMs, t.StartMs
	if t.State != Empty { // Kafka writes null for an empty one
		value.Topics = encodeTopics(t.Partitions)
	}
	if level >= Version1 {
		value.Version = 1
		value.PreviousProducerID, value.NextProducerID = t.PreviousProducerID, t.NextProducerID
		value.ClientTransactionVersion = t.ClientVersion
		if t.LastEpoch != noEpoch {
			value.UnknownTags.Set(tagLastEpoch, binary.BigEndian.AppendUint16(nil, uint16(t.LastEpoch)))
		}
	}
	return coordinator.Record{Key: encodeKey(id), Value: value.AppendTo(nil)}
}

func encodeKey(id string) []byte {
	key := kmsg.TxnMetadataKey{Version: keyVersion, TransactionalID: id}
	return key.AppendTo(nil)
}

// encodeTopics groups sorted partitions by topic. It is never nil.
func encodeTopics(parts []Partition) []kmsg.TxnMetadataValueTopic {
	topics := []kmsg.TxnMetadataValueTopic{}
	for _, p := range parts {
		if n := len(topics); n == 0 || topics[n-1].Topic != p.Topic {
			topics = append(topics, kmsg.TxnMetadataValueTopic{Topic: p.Topic})
		}
		last := &topics[len(topics)-1]
		last.Partitions = append(last.Partitions, p.Index)
	}
	return topics
}

// decodeKey reads a record's key.
func decodeKey(b []byte) (id string, err error) {
	if len(b) < 2 || binary.BigEndian.Uint16(b) != keyVersion {
		return "", fmt.Errorf("%w: key %.64x: want version %d", ErrRecord, b, keyVersion)
	}
	var key kmsg.TxnMetadataKey
	if err := key.ReadFrom(b); err != nil {
		return "", fmt.Errorf("%w: key %.64x: %w", ErrRecord, b, err)
	}
	return key.TransactionalID, nil
}

// decodeValue reads a record's value, which is no tombstone.
func decodeValue(b []byte) (Transaction, error) {
	if len(b) < 2 || binary.BigEndian.Uint16(b) > valueVersionMax {
		return Transaction{}, fmt.Errorf("%w: value %.64x: want version 0 or %d", ErrRecord, b, valueVersionMax)
	}
	value := kmsg.NewTxnMetadataValue()
	if err := value.ReadFrom(b); err != nil {
		return Transaction{}, fmt.Errorf("%w: value %.64x: %w", ErrRecord, b, err)
	}
	t := Transaction{
		State: State(value.State), ProducerID: value.ProducerID, Epoch: value.ProducerEpoch, LastEpoch: noEpoch,
		PreviousProducerID: value.PreviousProducerID, NextProducerID: value.NextProducerID, TimeoutMs: value.TimeoutMillis,
		StartMs: value.StartTimestamp, UpdateMs: value.LastUpdateTimestamp, ClientVersion: value.ClientTransactionVersion,
	}
	if !t.State.stored() {
		return Transaction{}, fmt.Errorf("%w: state %v", ErrRecord, t.State)
	}
	value.UnknownTags.Each(func(tag uint32, b []byte) {
		if tag == tagLastEpoch && len(b) == 2 {
			t.LastEpoch = int16(binary.BigEndian.Uint16(b))
		}
	})
	var parts []Partition
	for _, topic := range value.Topics {
		for _, p := range topic.Partitions {
			parts = append(parts, Partition{topic.Topic, p})
		}
	}
	t.Partitions = union(nil, parts)
	return t, nil
}
