package tools

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// formatterProperties are the properties of Kafka's default message formatter.
type formatterProperties struct {
	timestamp, partition, offset, epoch, headers, key, value bool

	keySeparator, lineSeparator, headersSeparator, nullLiteral string
}

// parseFormatterProperties reads NAME=VALUE pairs; separators may be written with Go's escapes, such as \t.
func parseFormatterProperties(pairs []string) (formatterProperties, error) {
	p := formatterProperties{value: true, keySeparator: "\t", lineSeparator: "\n", headersSeparator: ",", nullLiteral: "null"}
	m := map[string]string{}
	if err := splitPairs(m, pairs, "--formatter-property"); err != nil {
		return p, err
	}
	flags := map[string]*bool{
		"print.timestamp": &p.timestamp, "print.partition": &p.partition, "print.offset": &p.offset, "print.epoch": &p.epoch,
		"print.headers": &p.headers, "print.key": &p.key, "print.value": &p.value,
	}
	texts := map[string]*string{
		"key.separator": &p.keySeparator, "line.separator": &p.lineSeparator,
		"headers.separator": &p.headersSeparator, "null.literal": &p.nullLiteral,
	}
	for name, value := range m {
		if flag, ok := flags[name]; ok {
			b, err := strconv.ParseBool(value)
			if err != nil {
				return p, fmt.Errorf("formatter property %s=%s: want true or false", name, value)
			}
			*flag = b
		} else if text, ok := texts[name]; ok {
			*text = unescape(value)
		} else {
			return p, fmt.Errorf("formatter property %s is unknown: `cairn consume --help` lists them", name)
		}
	}
	return p, nil
}

// recordFormatter writes records. append returns dst with the record behind it; it keeps no reference to the record.
type recordFormatter func(dst []byte, r *kgo.Record) ([]byte, error)

// text formats as Kafka's console consumer does: the parts asked for, in its order, separated by the key separator.
func (p formatterProperties) text(dst []byte, r *kgo.Record) ([]byte, error) {
	first := true
	part := func() {
		if !first {
			dst = append(dst, p.keySeparator...)
		}
		first = false
	}
	number := func(on bool, label string, n int64) {
		if on {
			part()
			dst = strconv.AppendInt(append(dst, label...), n, 10)
		}
	}
	if p.timestamp {
		part()
		dst = appendTimestamp(dst, r)
	}
	number(p.partition, "Partition:", int64(r.Partition))
	number(p.offset, "Offset:", r.Offset)
	number(p.epoch, "Epoch:", int64(r.LeaderEpoch))
	if p.headers {
		part()
		dst = p.appendHeaders(dst, r.Headers)
	}
	if p.key {
		part()
		dst = p.appendBytes(dst, r.Key)
	}
	if p.value {
		part()
		dst = p.appendBytes(dst, r.Value)
	}
	return append(dst, p.lineSeparator...), nil
}

func (p formatterProperties) appendBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, p.nullLiteral...)
	}
	return append(dst, b...)
}

func (p formatterProperties) appendHeaders(dst []byte, hs []kgo.RecordHeader) []byte {
	if len(hs) == 0 {
		return append(dst, "NO_HEADERS"...)
	}
	for i, h := range hs {
		if i > 0 {
			dst = append(dst, p.headersSeparator...)
		}
		dst = p.appendBytes(append(append(dst, h.Key...), ':'), h.Value)
	}
	return dst
}

func appendTimestamp(dst []byte, r *kgo.Record) []byte {
	name := timestampType(r)
	if name == "" {
		return append(dst, "NO_TIMESTAMP"...)
	}
	return strconv.AppendInt(append(append(dst, name...), ':'), r.Timestamp.UnixMilli(), 10)
}

// timestampType is Kafka's name for what the timestamp of the record says; empty for records without one.
func timestampType(r *kgo.Record) string {
	switch r.Attrs.TimestampType() {
	case 0:
		return "CreateTime"
	case 1:
		return "LogAppendTime"
	default:
		return ""
	}
}

// formatRaw writes the value alone, with nothing between records.
func formatRaw(dst []byte, r *kgo.Record) ([]byte, error) { return append(dst, r.Value...), nil }

// formatJSON writes one object per line; jsonReader reads it back.
func formatJSON(dst []byte, r *kgo.Record) ([]byte, error) {
	ts := r.Timestamp.UnixMilli()
	j := jsonRecord{
		Topic: r.Topic, Partition: &r.Partition, Offset: &r.Offset, LeaderEpoch: &r.LeaderEpoch,
		Timestamp: &ts, Type: timestampType(r), Key: r.Key, Value: r.Value,
	}
	for _, h := range r.Headers {
		j.Headers = append(j.Headers, jsonHeader(h))
	}
	b, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	return append(append(dst, b...), '\n'), nil
}

// writeAll formats the records into one buffer and writes it; the buffer is returned for the next call.
func writeAll(w io.Writer, buf []byte, format recordFormatter, records []*kgo.Record) ([]byte, error) {
	buf = buf[:0]
	for _, r := range records {
		var err error
		if buf, err = format(buf, r); err != nil {
			return buf, fmt.Errorf("record at offset %d of %s-%d: %w", r.Offset, r.Topic, r.Partition, err)
		}
	}
	_, err := w.Write(buf)
	return buf, err
}
