package batch

import "errors"

// The errors of this package. Each is returned wrapped, with the reason in its text; compare with errors.Is.
// Their names are those of Kafka's error codes.
var (
	// ErrInvalidRecord: the batch or one of its records breaks a rule of the format or of the topic.
	ErrInvalidRecord = errors.New("invalid record")
	// ErrInvalidTimestamp: a record's timestamp is out of the topic's range, or of a type that clients may not send.
	ErrInvalidTimestamp = errors.New("invalid timestamp")
	// ErrMessageTooLarge: the batch exceeds max.message.bytes, or what it holds when opened exceeds the limit for that.
	ErrMessageTooLarge = errors.New("message too large")
	// ErrCorruptMessage: wrong CRC, a length that cannot be, or compressed data that cannot be opened.
	ErrCorruptMessage = errors.New("corrupt message")
	// ErrUnsupportedCompression: the attributes name a codec that does not exist.
	ErrUnsupportedCompression = errors.New("unsupported compression type")
)

// RecordError names one record that failed, for the record_errors of a produce response.
type RecordError struct {
	BatchIndex int32 // position of the record in the batch, from 0
	Message    string
}

// recordErrorsMax bounds the list of record errors of one batch, so that a batch of bad records costs no more memory
// in its answer than it did in the request. The batch fails as a whole in any case.
const recordErrorsMax = 1000
