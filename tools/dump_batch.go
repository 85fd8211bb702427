package tools

import (
	"encoding/binary"
	"fmt"
	"strings"

	"cairn/engine/producer"
	"cairn/wire/batch"
)

// dumpedBatch is the JSON form of a stored batch.
type dumpedBatch struct {
	BaseOffset    int64          `json:"baseOffset"`
	LastOffset    int64          `json:"lastOffset"`
	Count         int32          `json:"count"`
	BaseSequence  int32          `json:"baseSequence"`
	LastSequence  int32          `json:"lastSequence"`
	ProducerID    int64          `json:"producerId"`
	ProducerEpoch int16          `json:"producerEpoch"`
	LeaderEpoch   int32          `json:"partitionLeaderEpoch"`
	Transactional bool           `json:"isTransactional"`
	Control       bool           `json:"isControl"`
	DeleteHorizon *int64         `json:"deleteHorizonMs"`
	Position      int64          `json:"position"` // bytes of the dumped batches before this one
	TimestampType string         `json:"timestampType"`
	Timestamp     int64          `json:"timestamp"`
	Size          int            `json:"size"`
	Magic         int8           `json:"magic"`
	Codec         string         `json:"compresscodec"`
	CRC           uint32         `json:"crc"`
	Valid         bool           `json:"isvalid"`
	Problem       string         `json:"problem,omitempty"`
	QuarantinedAt *int64         `json:"quarantinedAtMs,omitempty"` // when it was taken out of the log
	Records       []dumpedRecord `json:"records,omitzero"`          // where they were asked for
}

// dumpedRecord is the JSON form of a record in a batch. Key, value and header values are base64, null where absent.
type dumpedRecord struct {
	Offset           int64        `json:"offset"`
	Timestamp        int64        `json:"timestamp"`
	Sequence         int32        `json:"sequence"`
	Headers          []jsonHeader `json:"headers,omitempty"`
	Key              []byte       `json:"key"`
	Value            []byte       `json:"value"`
	Marker           string       `json:"endTxnMarker,omitempty"`
	CoordinatorEpoch *int32       `json:"coordinatorEpoch,omitempty"`
	DecodedKey       string       `json:"decodedKey,omitempty"`
	DecodedValue     string       `json:"decodedValue,omitempty"`
}

// batchDumper prints batches one after the other.
type batchDumper struct {
	printData bool
	decoder   DumpDecoder
	out       Output
	position  int64
	damaged   int
	// quarantinedAt is when the next batch was taken out of its log, nil for one that is in it.
	quarantinedAt *int64
}

// batch prints one stored batch; raw is borrowed. An error is one of printing.
func (d *batchDumper) batch(base int64, raw []byte) error {
	defer func() { d.position += int64(len(raw)) }()
	h, err := batch.ParseHeader(raw)
	if err != nil {
		d.damaged++
		return d.print(dumpedBatch{BaseOffset: base, LastOffset: base, Position: d.position, Size: len(raw), Problem: err.Error()})
	}
	b := dumpedBatch{
		BaseOffset: h.BaseOffset, LastOffset: h.LastOffset(), Count: h.RecordCount, BaseSequence: h.BaseSequence,
		LastSequence: lastSequence(&h), ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, LeaderEpoch: h.LeaderEpoch,
		Transactional: h.IsTransactional(), Control: h.IsControl(), Position: d.position, TimestampType: h.TimestampType().String(),
		Timestamp: h.MaxTimestamp, Size: len(raw), Magic: h.Magic, Codec: codecName(h.Codec()), CRC: h.CRC, Valid: true,
	}
	if h.HasDeleteHorizon() {
		b.DeleteHorizon = &h.BaseTimestamp
	}
	if _, err := checkBatch(base, raw); err != nil {
		b.Valid, b.Problem = false, err.Error()
	}
	if d.printData && b.Valid {
		if b.Records, err = dumpedRecords(&h, raw, d.decoder); err != nil {
			b.Valid, b.Problem = false, err.Error()
		}
	}
	if !b.Valid {
		d.damaged++
	}
	return d.print(b)
}

// checkBatch says what is wrong with a batch that is stored at an offset.
func checkBatch(base int64, raw []byte) (batch.Header, error) {
	h, err := batch.ParseHeader(raw)
	if err != nil {
		return h, err
	}
	if h.Size() != len(raw) || h.BaseOffset != base {
		return h, fmt.Errorf("stored at offset %d with %d bytes", base, len(raw))
	}
	return h, batch.VerifyCRC(raw)
}

func lastSequence(h *batch.Header) int32 {
	if h.BaseSequence < 0 {
		return batch.NoSequence
	}
	return producer.NextSequence(h.BaseSequence, h.LastOffsetDelta)
}

func codecName(c batch.Codec) string {
	if c == batch.CodecNone {
		return "none" // Kafka's dump says so, its topic config "uncompressed"
	}
	return c.String()
}

// dumpedRecords copies the records out of the batch, as far as they can be read.
func dumpedRecords(h *batch.Header, raw []byte, decoder DumpDecoder) ([]dumpedRecord, error) {
	all := []dumpedRecord{}
	for rec, err := range batch.Records(raw, 0) {
		if err != nil {
			return all, err
		}
		r := dumpedRecord{
			Offset: h.BaseOffset + int64(rec.OffsetDelta), Timestamp: rec.Timestamp(h), Sequence: batch.NoSequence,
			Key: cloneBytes(rec.Key), Value: cloneBytes(rec.Value),
		}
		if h.BaseSequence >= 0 {
			r.Sequence = producer.NextSequence(h.BaseSequence, rec.OffsetDelta)
		}
		for _, rh := range rec.Headers {
			r.Headers = append(r.Headers, jsonHeader{string(rh.Key), cloneBytes(rh.Value)})
		}
		if h.IsControl() {
			r.Marker, r.CoordinatorEpoch = endMarker(rec.Key, rec.Value)
		} else if decoder != DecodeNothing {
			if r.DecodedKey, r.DecodedValue, err = decoder.decode(rec.Key, rec.Value); err != nil {
				r.DecodedKey = err.Error()
			}
		}
		all = append(all, r)
	}
	return all, nil
}

// cloneBytes copies b and keeps null apart from empty.
func cloneBytes(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}

// endMarker reads the end of a transaction: the key is version and type, the value version and coordinator epoch.
func endMarker(key, value []byte) (marker string, epoch *int32) {
	if len(key) < 4 || len(value) < 6 {
		return "", nil
	}
	e := int32(binary.BigEndian.Uint32(value[2:]))
	switch binary.BigEndian.Uint16(key[2:]) {
	case 0:
		return "ABORT", &e
	case 1:
		return "COMMIT", &e
	default:
		return "", nil
	}
}

func (d *batchDumper) print(b dumpedBatch) error {
	b.QuarantinedAt = d.quarantinedAt
	if d.out.JSON {
		return d.out.writeJSON(b)
	}
	if b.Problem != "" {
		d.out.warn("batch at offset %d: %s", b.BaseOffset, b.Problem)
	}
	horizon := "OptionalLong.empty"
	if b.DeleteHorizon != nil {
		horizon = fmt.Sprintf("OptionalLong[%d]", *b.DeleteHorizon)
	}
	_, err := fmt.Fprintf(d.out.Out, "baseOffset: %d lastOffset: %d count: %d baseSequence: %d lastSequence: %d producerId: %d producerEpoch: %d "+
		"partitionLeaderEpoch: %d isTransactional: %t isControl: %t deleteHorizonMs: %s position: %d %s: %d size: %d magic: %d compresscodec: %s crc: %d isvalid: %t%s\n",
		b.BaseOffset, b.LastOffset, b.Count, b.BaseSequence, b.LastSequence, b.ProducerID, b.ProducerEpoch, b.LeaderEpoch, b.Transactional, b.Control,
		horizon, b.Position, b.TimestampType, b.Timestamp, b.Size, b.Magic, b.Codec, b.CRC, b.Valid, quarantineText(b.QuarantinedAt))
	for _, r := range b.Records {
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(d.out.Out, r.line(b.TimestampType))
	}
	return err
}

func quarantineText(ms *int64) string {
	if ms == nil {
		return ""
	}
	return " quarantinedAt: " + timeText(*ms)
}

// line is Kafka's line of a record. A null key or value is not printed, only its size of -1.
func (r *dumpedRecord) line(timestampType string) string {
	var keys []string
	for _, h := range r.Headers {
		keys = append(keys, h.Key)
	}
	var s strings.Builder
	fmt.Fprintf(&s, "| offset: %d %s: %d keySize: %d valueSize: %d sequence: %d headerKeys: [%s]",
		r.Offset, timestampType, r.Timestamp, sizeOrNull(r.Key), sizeOrNull(r.Value), r.Sequence, strings.Join(keys, ","))
	if r.Marker != "" {
		fmt.Fprintf(&s, " endTxnMarker: %s coordinatorEpoch: %d", r.Marker, *r.CoordinatorEpoch)
		return s.String()
	}
	if r.DecodedKey != "" {
		fmt.Fprintf(&s, " key: %s", r.DecodedKey)
		if r.DecodedValue != "" {
			fmt.Fprintf(&s, " payload: %s", r.DecodedValue)
		}
		return s.String()
	}
	if r.Key != nil {
		fmt.Fprintf(&s, " key: %s", r.Key)
	}
	if r.Value != nil {
		fmt.Fprintf(&s, " payload: %s", r.Value)
	}
	return s.String()
}

func sizeOrNull(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}
