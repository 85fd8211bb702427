package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The errors of ParseRequest, wrapped with the reason. The connection is to be closed, except that an ApiVersions
// request with ErrUnsupportedVersion is answered in version 0 with the error code UNSUPPORTED_VERSION.
var (
	ErrUnknownKey         = errors.New("unknown API key")
	ErrUnsupportedVersion = errors.New("unsupported API version")
	ErrMalformed          = errors.New("malformed request")
)

// Header is the header of a request.
type Header struct {
	Key, Version  int16
	CorrelationID int32
	ClientID      string // "" for null as well
}

// headerMin is the part of a request header that has a fixed size: key, version, correlation id.
const headerMin = 8

// ParseRequest parses a frame against Kafka's table, see Table.ParseRequest.
func ParseRequest(frame []byte) (Header, kmsg.Request, error) { return standard.ParseRequest(frame) }

// ParseRequest parses a frame (without its length prefix): the header of version 1 or 2, as the request asks for, and
// the request itself, with its version set. Byte fields of the request, the records of a produce request first of
// all, alias the frame; strings are copies. What it allocates is bounded by a multiple of the frame (see layout.go).
//
// The header is valid as far as it was read also when there is an error: with ErrUnknownKey and
// ErrUnsupportedVersion key, version and correlation id are right.
func (t *Table) ParseRequest(frame []byte) (Header, kmsg.Request, error) {
	if len(frame) < headerMin {
		return Header{}, nil, fmt.Errorf("%w: frame of %d bytes", ErrMalformed, len(frame))
	}
	h := Header{
		Key:           int16(binary.BigEndian.Uint16(frame)),
		Version:       int16(binary.BigEndian.Uint16(frame[2:])),
		CorrelationID: int32(binary.BigEndian.Uint32(frame[4:])),
	}
	api := t.byKey[h.Key]
	if api == nil {
		return h, nil, fmt.Errorf("%w: %d", ErrUnknownKey, h.Key)
	}
	if !api.Supports(h.Version) {
		return h, nil, fmt.Errorf("%w: %s version %d, offered are %d to %d", ErrUnsupportedVersion, api.Name, h.Version, api.Min, api.Max)
	}
	req := api.newRequest()
	req.SetVersion(h.Version)
	r := reader{src: frame[headerMin:]}
	h.ClientID = r.nullableString()
	if req.IsFlexible() {
		r.skipTags()
	}
	if r.bad {
		return h, nil, fmt.Errorf("%w: header of %s", ErrMalformed, api.Name)
	}
	if err := parseBody(req, r.src); err != nil {
		return h, nil, fmt.Errorf("%w: %s version %d: %w", ErrMalformed, api.Name, h.Version, err)
	}
	return h, req, nil
}

func parseBody(req kmsg.Request, body []byte) error {
	if p, ok := req.(*kmsg.ProduceRequest); ok {
		return parseProduce(p, body)
	}
	if req.Key() < PrivateKeyMin {
		l, ok := requestLayouts[req.Key()]
		if !ok {
			panic(fmt.Sprintf("BUG: no layout for API key %d, run go generate", req.Key()))
		}
		if err := l.checkMemory(req.GetVersion(), body); err != nil {
			return err
		}
	}
	return req.ReadFrom(body)
}
