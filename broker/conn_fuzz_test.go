package broker

import (
	"encoding/binary"
	"net"
	"testing"

	"cairn/raftgroup"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzConnection sends arbitrary bytes: the connection ends, nothing panics, and no memory stays taken.
func FuzzConnection(f *testing.F) {
	f.Add(apiVersionsFrame(1))
	f.Add(append(apiVersionsFrame(1), apiVersionsFrame(2)...))
	f.Add(frameOf(withVersion(kmsg.NewPtrMetadataRequest(), 12), 3))
	f.Add(binary.BigEndian.AppendUint32(nil, 1<<19))
	f.Add(raftgroup.Preface[:])
	f.Fuzz(func(t *testing.T, in []byte) {
		cfg := testServerConfig(func(r *request) { r.replyBuffers(net.Buffers{{0, 0, 0, 4}, {0, 0, 0, 1}}) })
		nc, s, done := pipeConn(t, cfg)
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			buf := make([]byte, 1024)
			for {
				if _, err := nc.Read(buf); err != nil {
					return
				}
			}
		}()
		_, _ = nc.Write(in) // fails when the server has had enough
		_ = nc.Close()
		<-done
		<-drained
		if used := s.memory.used(); used != 0 {
			t.Errorf("%d bytes still taken", used)
		}
	})
}
