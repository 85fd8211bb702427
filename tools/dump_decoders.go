package tools

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DumpDecoder names what the records of a dumped partition are.
type DumpDecoder int

const (
	DecodeNothing      DumpDecoder = iota
	DecodeOffsets                  // of __consumer_offsets
	DecodeTransactions             // of __transaction_state
)

// errNoDecoder: a record of another kind or version than the decoder knows.
var errNoDecoder = errors.New("not decoded")

// typed is Kafka's form of a decoded key: its version tells what kind of record it is.
type typed struct {
	Type string `json:"type"`
	Data any    `json:"data"`
}

// versioned is Kafka's form of a decoded value.
type versioned struct {
	Version string `json:"version"`
	Data    any    `json:"data"`
}

// decode gives key and value in the JSON form of Kafka's dump; a null value is "<DELETE>" there.
func (d DumpDecoder) decode(key, value []byte) (k, v string, err error) {
	if len(key) < 2 {
		return "", "", fmt.Errorf("%w: key of %d bytes", errNoDecoder, len(key))
	}
	kind := int16(binary.BigEndian.Uint16(key))
	var keyData, valueData any
	switch d {
	case DecodeOffsets:
		keyData, valueData, err = decodeOffsets(kind, key, value)
	case DecodeTransactions:
		keyData, valueData, err = decodeTransaction(kind, key, value)
	default:
		return "", "", errNoDecoder
	}
	if err != nil {
		return "", "", err
	}
	if k, err = jsonText(typed{strconv.Itoa(int(kind)), keyData}); err != nil {
		return "", "", err
	}
	if value == nil {
		return k, "<DELETE>", nil
	}
	v, err = jsonText(versioned{strconv.Itoa(int(binary.BigEndian.Uint16(value))), valueData})
	return k, v, err
}

func jsonText(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// checkValue sees that a value has a version of at most the given one.
func checkValue(value []byte, most int16) error {
	if value == nil {
		return nil
	}
	if len(value) < 2 {
		return fmt.Errorf("%w: value of %d bytes", errNoDecoder, len(value))
	}
	if v := int16(binary.BigEndian.Uint16(value)); v < 0 || v > most {
		return fmt.Errorf("%w: value version %d", errNoDecoder, v)
	}
	return nil
}

type offsetKeyJSON struct {
	Group     string `json:"group"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

type offsetJSON struct {
	Offset          int64  `json:"offset"`
	LeaderEpoch     *int32 `json:"leaderEpoch,omitempty"`
	Metadata        string `json:"metadata"`
	CommitTimestamp int64  `json:"commitTimestamp"`
	ExpireTimestamp *int64 `json:"expireTimestamp,omitempty"`
	TopicID         string `json:"topicId,omitempty"`
}

type groupKeyJSON struct {
	Group string `json:"group"`
}

type groupJSON struct {
	ProtocolType          string       `json:"protocolType"`
	Generation            int32        `json:"generation"`
	Protocol              *string      `json:"protocol"`
	Leader                *string      `json:"leader"`
	CurrentStateTimestamp *int64       `json:"currentStateTimestamp,omitempty"`
	Members               []memberJSON `json:"members"`
}

type memberJSON struct {
	MemberID         string  `json:"memberId"`
	GroupInstanceID  *string `json:"groupInstanceId"`
	ClientID         string  `json:"clientId"`
	ClientHost       string  `json:"clientHost"`
	RebalanceTimeout int32   `json:"rebalanceTimeout"`
	SessionTimeout   int32   `json:"sessionTimeout"`
	Subscription     []byte  `json:"subscription"`
	Assignment       []byte  `json:"assignment"`
}

// decodeOffsets decodes commits and classic groups; other kinds are those of the consumer protocol.
func decodeOffsets(kind int16, key, value []byte) (k, v any, err error) {
	switch kind {
	case 0, 1:
		var ok kmsg.OffsetCommitKey
		if err := errors.Join(ok.ReadFrom(key), checkValue(value, 4)); err != nil {
			return nil, nil, err
		}
		v, err = decodeCommit(value)
		return offsetKeyJSON{ok.Group, ok.Topic, ok.Partition}, v, err
	case 2:
		var gk kmsg.GroupMetadataKey
		if err := errors.Join(gk.ReadFrom(key), checkValue(value, 4)); err != nil {
			return nil, nil, err
		}
		v, err = decodeGroup(value)
		return groupKeyJSON{gk.Group}, v, err
	}
	return nil, nil, fmt.Errorf("%w: record type %d", errNoDecoder, kind)
}

func decodeCommit(value []byte) (any, error) {
	if value == nil {
		return nil, nil
	}
	var c kmsg.OffsetCommitValue
	if err := c.ReadFrom(value); err != nil {
		return nil, err
	}
	j := offsetJSON{Offset: c.Offset, Metadata: c.Metadata, CommitTimestamp: c.CommitTimestamp}
	if c.Version >= 3 {
		j.LeaderEpoch = &c.LeaderEpoch
	}
	if c.Version == 1 {
		j.ExpireTimestamp = &c.ExpireTimestamp
	}
	if id := ids.UUID(c.TopicID); !id.IsZero() {
		j.TopicID = id.String()
	}
	return j, nil
}

func decodeGroup(value []byte) (any, error) {
	if value == nil {
		return nil, nil
	}
	var g kmsg.GroupMetadataValue
	if err := g.ReadFrom(value); err != nil {
		return nil, err
	}
	j := groupJSON{ProtocolType: g.ProtocolType, Generation: g.Generation, Protocol: g.Protocol, Leader: g.Leader, Members: []memberJSON{}}
	if g.Version >= 2 {
		j.CurrentStateTimestamp = &g.CurrentStateTimestamp
	}
	for _, m := range g.Members {
		j.Members = append(j.Members, memberJSON{
			m.MemberID, m.InstanceID, m.ClientID, m.ClientHost, m.RebalanceTimeoutMillis, m.SessionTimeoutMillis, m.Subscription, m.Assignment,
		})
	}
	return j, nil
}

type transactionKeyJSON struct {
	TransactionalID string `json:"transactionalId"`
}

type transactionJSON struct {
	ProducerID               int64                      `json:"producerId"`
	PreviousProducerID       *int64                     `json:"previousProducerId,omitempty"`
	NextProducerID           *int64                     `json:"nextProducerId,omitempty"`
	ProducerEpoch            int16                      `json:"producerEpoch"`
	TransactionTimeoutMs     int32                      `json:"transactionTimeoutMs"`
	TransactionStatus        int8                       `json:"transactionStatus"`
	TransactionPartitions    []transactionPartitionJSON `json:"transactionPartitions"`
	LastUpdateTimestampMs    int64                      `json:"transactionLastUpdateTimestampMs"`
	StartTimestampMs         int64                      `json:"transactionStartTimestampMs"`
	ClientTransactionVersion int16                      `json:"clientTransactionVersion,omitempty"`
}

type transactionPartitionJSON struct {
	Topic        string  `json:"topic"`
	PartitionIDs []int32 `json:"partitionIds"`
}

func decodeTransaction(kind int16, key, value []byte) (k, v any, err error) {
	if kind != 0 {
		return nil, nil, fmt.Errorf("%w: record type %d", errNoDecoder, kind)
	}
	var tk kmsg.TxnMetadataKey
	if err := errors.Join(tk.ReadFrom(key), checkValue(value, 1)); err != nil {
		return nil, nil, err
	}
	if value == nil {
		return transactionKeyJSON{tk.TransactionalID}, nil, nil
	}
	t := kmsg.NewTxnMetadataValue()
	if err := t.ReadFrom(value); err != nil {
		return nil, nil, err
	}
	j := transactionJSON{
		ProducerID: t.ProducerID, ProducerEpoch: t.ProducerEpoch, TransactionTimeoutMs: t.TimeoutMillis, TransactionStatus: int8(t.State),
		LastUpdateTimestampMs: t.LastUpdateTimestamp, StartTimestampMs: t.StartTimestamp, ClientTransactionVersion: t.ClientTransactionVersion,
	}
	if t.PreviousProducerID != -1 {
		j.PreviousProducerID = &t.PreviousProducerID
	}
	if t.NextProducerID != -1 {
		j.NextProducerID = &t.NextProducerID
	}
	for _, p := range t.Topics {
		j.TransactionPartitions = append(j.TransactionPartitions, transactionPartitionJSON{p.Topic, p.Partitions})
	}
	return transactionKeyJSON{tk.TransactionalID}, j, nil
}
