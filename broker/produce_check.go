package broker

import (
	"encoding/binary"
	"errors"
	"fmt"

	"cairn/broker/controller"
	"cairn/wire/batch"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// produceZstd is the first produce version in which zstd is allowed.
	produceZstd = 7
	// adminClientID is the client id that may write to internal topics, as in Kafka.
	adminClientID = "__admin_client"
)

// errors of produce that have no other home.
var (
	errTransactionalID      = errors.New("transactional batch without a transactional id")
	errRequiredAcks         = errors.New("acks must be -1, 0 or 1")
	errInternalTopic        = errors.New("clients may not write to an internal topic")
	errNotEnoughReplicas    = errors.New("not enough in-sync replicas")
	errNotEnoughAfterAppend = errors.New("not enough in-sync replicas after the append")
	errRequestTimedOut      = errors.New("timed out; the batch may still become durable")
)

// precheck is what Kafka checks of a partition before it looks for the replica.
func (op *produceOp) precheck(topic *controller.Topic, raw []byte) error {
	h, err := checkOneBatch(raw)
	switch {
	case err != nil:
		return err
	case h.Codec() == batch.CodecZstd && op.req.Version < produceZstd:
		return fmt.Errorf("%w: zstd in a produce request of version %d", batch.ErrUnsupportedCompression, op.req.Version)
	case op.acks != acksNone && op.acks != acksLeader && op.acks != acksAll:
		return errRequiredAcks
	case topic.Internal && op.r.hdr.ClientID != adminClientID:
		return errInternalTopic
	}
	return nil
}

// What a record set must have for its length and its magic to be read, and the least length that there ever was.
const (
	lengthKnown, magicKnown = 12, 17
	recordLengthMin         = 14
)

// checkOneBatch sees that raw holds one batch of magic 2 and nothing else. As in Kafka, a length or a magic that cannot be is
// corrupt, and a batch that is not all there is none.
func checkOneBatch(raw []byte) (batch.Header, error) {
	if len(raw) >= lengthKnown {
		if length := int32(binary.BigEndian.Uint32(raw[lengthKnown-4:])); length < recordLengthMin {
			return batch.Header{}, fmt.Errorf("%w: batch length %d", batch.ErrCorruptMessage, length)
		}
	}
	if len(raw) >= magicKnown {
		if magic := int8(raw[magicKnown-1]); magic < 0 || magic > batch.Magic {
			return batch.Header{}, fmt.Errorf("%w: magic %d", batch.ErrCorruptMessage, magic)
		}
	}
	if len(raw) < batch.HeaderLen {
		return batch.Header{}, fmt.Errorf("%w: %d bytes are no batch", batch.ErrInvalidRecord, len(raw))
	}
	h := batch.DecodeHeader(raw)
	switch {
	case h.Magic != batch.Magic:
		return h, fmt.Errorf("%w: magic %d", batch.ErrInvalidRecord, h.Magic)
	case h.Size() != len(raw):
		return h, fmt.Errorf("%w: batch of %d bytes in a record set of %d", batch.ErrInvalidRecord, h.Size(), len(raw))
	}
	return h, nil
}

// hasTransactional reports whether any batch of the request has the transactional bit.
func hasTransactional(req *kmsg.ProduceRequest) bool {
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			raw := req.Topics[i].Partitions[j].Records
			if len(raw) < batch.HeaderLen {
				continue
			}
			if h := batch.DecodeHeader(raw); h.IsTransactional() {
				return true
			}
		}
	}
	return false
}
