package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// AppendResponse appends a whole response frame to dst: length prefix, response header, body. The version of resp is
// set to that of the request header h, or to 0 for an ApiVersions request of a version that is not offered. The
// header is of version 1, with tagged fields, where the response is flexible; for ApiVersions it is always of version 0.
func AppendResponse(dst []byte, h Header, resp kmsg.Response) []byte {
	resp.SetVersion(responseVersion(h))
	start := len(dst)
	dst = appendResponseHeader(dst, h, resp.IsFlexible())
	dst = resp.AppendTo(dst)
	putFrameLength(dst[start:], len(dst)-start)
	return dst
}

func responseVersion(h Header) int16 {
	if h.Key == int16(kmsg.ApiVersions) && !standard.byKey[h.Key].Supports(h.Version) {
		return 0
	}
	return h.Version
}

// appendResponseHeader appends room for the length prefix and the response header.
func appendResponseHeader(dst []byte, h Header, flexible bool) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(h.CorrelationID))
	if flexible && h.Key != int16(kmsg.ApiVersions) {
		dst = append(dst, 0)
	}
	return dst
}

// putFrameLength writes the length prefix of a frame that has total bytes with it.
func putFrameLength(frame []byte, total int) {
	if total-4 > math.MaxInt32 {
		panic(fmt.Sprintf("BUG: response of %d bytes", total))
	}
	binary.BigEndian.PutUint32(frame, uint32(total-4))
}
