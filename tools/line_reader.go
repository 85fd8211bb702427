package tools

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// maxLineBytes bounds one input line, and so the memory of a producer that is fed something without line ends.
const maxLineBytes = 128 << 20

// readerProperties are the reader properties of Kafka's console producer.
type readerProperties struct {
	parseKey, parseHeaders, ignoreError bool
	keySeparator                        string // between key and value
	headersDelimiter                    string // between headers and what follows
	headersSeparator                    string // between headers
	headerKeySeparator                  string // between the key and the value of a header
	nullMarker                          string // stands for null; empty: none does
}

// parseReaderProperties reads NAME=VALUE pairs; separators may be written with Go's escapes, such as \t.
func parseReaderProperties(pairs []string) (readerProperties, error) {
	p := readerProperties{keySeparator: "\t", headersDelimiter: "\t", headersSeparator: ",", headerKeySeparator: ":"}
	m := map[string]string{}
	if err := splitPairs(m, pairs, "--reader-property"); err != nil {
		return p, err
	}
	flags := map[string]*bool{"parse.key": &p.parseKey, "parse.headers": &p.parseHeaders, "ignore.error": &p.ignoreError}
	texts := map[string]*string{
		"key.separator": &p.keySeparator, "headers.delimiter": &p.headersDelimiter, "headers.separator": &p.headersSeparator,
		"headers.key.separator": &p.headerKeySeparator, "null.marker": &p.nullMarker,
	}
	for name, value := range m {
		if flag, ok := flags[name]; ok {
			b, err := strconv.ParseBool(value)
			if err != nil {
				return p, fmt.Errorf("reader property %s=%s: want true or false", name, value)
			}
			*flag = b
		} else if text, ok := texts[name]; ok {
			*text = unescape(value)
		} else {
			return p, fmt.Errorf("reader property %s is unknown: `cairn produce --help` lists them", name)
		}
	}
	return p, p.validate()
}

func (p readerProperties) validate() error {
	switch {
	case p.keySeparator == "" || p.headersDelimiter == "" || p.headersSeparator == "" || p.headerKeySeparator == "":
		return errors.New("reader properties: a separator must not be empty")
	case p.parseHeaders && p.headersDelimiter == p.headersSeparator:
		return errors.New("reader properties: headers.delimiter and headers.separator must differ")
	case p.parseHeaders && p.headersDelimiter == p.headerKeySeparator:
		return errors.New("reader properties: headers.delimiter and headers.key.separator must differ")
	case p.parseHeaders && p.headersSeparator == p.headerKeySeparator:
		return errors.New("reader properties: headers.separator and headers.key.separator must differ")
	case p.nullMarker != "" && (p.nullMarker == p.keySeparator || p.nullMarker == p.headersDelimiter ||
		p.nullMarker == p.headersSeparator || p.nullMarker == p.headerKeySeparator):
		return errors.New("reader properties: null.marker must differ from the separators")
	default:
		return nil
	}
}

// unescape turns \t, \n, \x00 and the like into what they mean; text that is no valid escape stays as it is.
func unescape(s string) string {
	if u, err := strconv.Unquote(`"` + s + `"`); err == nil {
		return u
	}
	return s
}

// recordReader reads the records of a producer's input.
type recordReader interface {
	// next returns io.EOF after the last record. The record is owned by the caller.
	next() (*kgo.Record, error)
}

// lineReader makes one record of each line. Lines end at \n alone: a \r before it belongs to the record, so any text comes back byte for byte.
type lineReader struct {
	in    *bufio.Reader
	props readerProperties
	line  int
}

func newLineReader(in io.Reader, props readerProperties) *lineReader {
	return &lineReader{in: bufio.NewReaderSize(in, 64<<10), props: props}
}

func (r *lineReader) next() (*kgo.Record, error) {
	line, err := readLine(r.in)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, fmt.Errorf("line %d: %w", r.line+1, err)
	}
	r.line++
	return r.parse(line)
}

// readLine returns the next line without its \n, in memory of its own; the last line may lack the \n.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(line) > maxLineBytes:
			return nil, fmt.Errorf("longer than %d bytes", maxLineBytes)
		}
	}
}

func (r *lineReader) parse(line []byte) (*kgo.Record, error) {
	rec, rest := &kgo.Record{}, line
	if r.props.parseHeaders {
		head, tail, err := r.cut(rest, r.props.headersDelimiter, "headers delimiter")
		if err != nil {
			return nil, err
		}
		if rest = tail; head != nil && !r.isNull(head) {
			if rec.Headers, err = r.headers(head); err != nil {
				return nil, err
			}
		}
	}
	if r.props.parseKey {
		key, tail, err := r.cut(rest, r.props.keySeparator, "key separator")
		if err != nil {
			return nil, err
		}
		if rest = tail; !r.isNull(key) {
			rec.Key = key
		}
	}
	if !r.isNull(rest) {
		rec.Value = rest
	}
	return rec, nil
}

// cut splits b at the separator. Without one the whole is what follows, if errors are to be ignored.
func (r *lineReader) cut(b []byte, sep, what string) (before, after []byte, err error) {
	before, after, ok := bytes.Cut(b, []byte(sep))
	if ok {
		return before, after, nil
	}
	if r.props.ignoreError {
		return nil, b, nil
	}
	return nil, nil, fmt.Errorf("line %d: no %s %q found; --reader-property ignore.error=true takes such lines as values", r.line, what, sep)
}

func (r *lineReader) headers(b []byte) ([]kgo.RecordHeader, error) {
	var hs []kgo.RecordHeader
	for _, h := range bytes.Split(b, []byte(r.props.headersSeparator)) {
		k, v, ok := bytes.Cut(h, []byte(r.props.headerKeySeparator))
		if !ok && !r.props.ignoreError {
			return nil, fmt.Errorf("line %d: header %q has no %q; --reader-property ignore.error=true gives it a null value", r.line, h, r.props.headerKeySeparator)
		}
		header := kgo.RecordHeader{Key: string(k)}
		if ok && !r.isNull(v) {
			header.Value = v
		}
		hs = append(hs, header)
	}
	return hs, nil
}

func (r *lineReader) isNull(b []byte) bool {
	return r.props.nullMarker != "" && string(b) == r.props.nullMarker
}

// jsonRecord is a record in the JSON form of produce and consume. Key, value and header values are base64 there, null where absent.
type jsonRecord struct {
	Topic       string       `json:"topic,omitempty"`
	Partition   *int32       `json:"partition,omitempty"`
	Offset      *int64       `json:"offset,omitempty"`
	LeaderEpoch *int32       `json:"leaderEpoch,omitempty"`
	Timestamp   *int64       `json:"timestamp,omitempty"` // milliseconds
	Type        string       `json:"timestampType,omitempty"`
	Headers     []jsonHeader `json:"headers,omitempty"`
	Key         []byte       `json:"key"`
	Value       []byte       `json:"value"`
}

type jsonHeader struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// jsonReader makes one record of each JSON object, in the form that `cairn consume --json` prints. Topic, partition and offset are not taken over.
type jsonReader struct {
	dec *json.Decoder
	n   int
}

// newJSONReader refuses objects with other fields: they would become records without value.
func newJSONReader(in io.Reader) *jsonReader {
	dec := json.NewDecoder(in)
	dec.DisallowUnknownFields()
	return &jsonReader{dec: dec}
}

func (r *jsonReader) next() (*kgo.Record, error) {
	var j jsonRecord
	if err := r.dec.Decode(&j); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, fmt.Errorf("record %d: %w; want objects as `cairn consume --json` prints them", r.n+1, err)
	}
	r.n++
	rec := &kgo.Record{Key: j.Key, Value: j.Value}
	if j.Timestamp != nil {
		rec.Timestamp = time.UnixMilli(*j.Timestamp)
	}
	for _, h := range j.Headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return rec, nil
}
