package tools

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// FuzzLineReader: whatever is read, the values of plain lines are the input again, and no option makes it fail otherwise than with an error.
func FuzzLineReader(f *testing.F) {
	f.Add([]byte("a\nb\r\n\nc"), true, true, false, ":")
	f.Add([]byte("h:1,i:2\tk:v\n"), true, true, true, "\t")
	f.Fuzz(func(t *testing.T, in []byte, keys, headers, ignore bool, separator string) {
		var got []byte
		plain := newLineReader(bytes.NewReader(in), readerProperties{})
		for {
			rec, err := plain.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got = append(append(got, rec.Value...), '\n')
		}
		if want := bytes.TrimSuffix(in, []byte("\n")); !bytes.Equal(bytes.TrimSuffix(got, []byte("\n")), want) {
			t.Errorf("%q came back as %q", in, got)
		}
		if separator == "" {
			return
		}
		r := newLineReader(bytes.NewReader(in), readerProperties{
			parseKey: keys, parseHeaders: headers, ignoreError: ignore, keySeparator: separator, headersDelimiter: "\t", headersSeparator: ",", headerKeySeparator: ":",
		})
		for {
			if _, err := r.next(); err != nil {
				if ignore && !errors.Is(err, io.EOF) {
					t.Errorf("error %v although errors are ignored", err)
				}
				return
			}
		}
	})
}

// FuzzJSONRecords: a record that consume prints as JSON is the same when produce reads it.
func FuzzJSONRecords(f *testing.F) {
	f.Add([]byte("k"), []byte{0xff, 0}, "h", []byte("v"), int64(1234))
	f.Fuzz(func(t *testing.T, key, value []byte, name string, header []byte, ms int64) {
		const fourBillionYears = int64(1) << 57
		rec := &kgo.Record{Key: key, Value: value, Headers: []kgo.RecordHeader{{Key: name, Value: header}}, Timestamp: time.UnixMilli(ms % fourBillionYears)}
		text, err := formatJSON(nil, rec)
		if err != nil {
			t.Fatal(err)
		}
		got, err := newJSONReader(bytes.NewReader(text)).next()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Key, key) || !bytes.Equal(got.Value, value) || (got.Value == nil) != (value == nil) || !got.Timestamp.Equal(rec.Timestamp) {
			t.Errorf("%s read as %+v", text, got)
		}
		if len(got.Headers) != 1 || !bytes.Equal(got.Headers[0].Value, header) {
			t.Errorf("%s has headers %+v", text, got.Headers)
		}
	})
}

// FuzzAssignment: what is taken is rectangular and without doubles.
func FuzzAssignment(f *testing.F) {
	f.Add("1:2,2:3")
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseAssignment(s)
		if err != nil {
			return
		}
		for _, replicas := range got {
			seen := map[int32]bool{}
			for _, id := range replicas {
				if id < 0 || seen[id] || len(replicas) != len(got[0]) {
					t.Fatalf("%q taken as %v", s, got)
				}
				seen[id] = true
			}
		}
	})
}
