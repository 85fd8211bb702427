package broker

import (
	"net"
	"sync"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupOperations are the operations that Kafka reports for a group when there is no authorizer, as a bit field.
const groupOperations int32 = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11

// groupClient is who sent the request, as groups show it.
func (r *request) groupClient() group.Client {
	host := r.conn.nc.RemoteAddr().String()
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return group.Client{ID: r.hdr.ClientID, Host: "/" + host}
}

// groupErrorCode maps an error of the coordinator's runtime to the code that clients of groups know. An unknown outcome
// is COORDINATOR_NOT_AVAILABLE, on which they ask again.
func groupErrorCode(err error) int16 {
	switch code := errorCode(err); code {
	case kerr.RequestTimedOut.Code, kerr.NotEnoughReplicas.Code, kerr.NotEnoughReplicasAfterAppend.Code, kerr.UnknownTopicOrPartition.Code:
		return kerr.CoordinatorNotAvailable.Code
	case kerr.NotLeaderForPartition.Code, kerr.KafkaStorageError.Code:
		return kerr.NotCoordinator.Code
	case kerr.MessageTooLarge.Code, kerr.RecordListTooLarge.Code:
		return kerr.UnknownServerError.Code
	default:
		return code
	}
}

// commitErrorCode is groupErrorCode for commits.
func commitErrorCode(err error) int16 {
	if code := errorCode(err); code == kerr.MessageTooLarge.Code {
		return kerr.InvalidCommitOffsetSize.Code
	}
	return groupErrorCode(err)
}

// coordinate has op answer the request; where that fails, refused answers with an error code.
func coordinate[R kmsg.Response](
	b *Broker, r *request, id string, refused func(code int16) R,
	op func(m *group.Machine, now time.Time, fx *coordinator.Effects, reply group.Reply[R]),
) {
	fail := func(err error) { r.reply(refused(groupErrorCode(err))) }
	b.groups.Do(id, func(m *group.Machine, now time.Time, fx *coordinator.Effects) {
		op(m, now, fx, func(resp R, err error) {
			if err != nil {
				fail(err)
				return
			}
			r.reply(resp)
		})
	}, fail)
}

// gathering collects the answers to the parts of a request, in their order, and calls done with all of them.
type gathering[T any] struct {
	done func([]T)

	mu    sync.Mutex
	parts []T // guarded by mu
	left  int // guarded by mu
}

// gather is for n parts. Without any, done is called at once.
func gather[T any](n int, done func([]T)) *gathering[T] {
	g := &gathering[T]{done: done, parts: make([]T, n), left: n}
	if n == 0 {
		done(g.parts)
	}
	return g
}

// put brings the answer to part i, once.
func (g *gathering[T]) put(i int, part T) {
	g.mu.Lock()
	g.parts[i] = part
	g.left--
	last := g.left == 0
	g.mu.Unlock()
	if last {
		g.done(g.parts)
	}
}
