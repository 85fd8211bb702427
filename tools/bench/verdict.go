package bench

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Verdict says what became of the records. A record is failed when its last answer refuses it; unknown when nobody said, as after a timeout, a broken
// connection, or with acks=0: it may be written or not. A record whose retries are used up counts as unknown, since franz-go does not say what the last
// answer was.
type Verdict struct {
	Sent         int64            `json:"sent"`
	Acknowledged int64            `json:"acknowledged"`
	Failed       map[string]int64 `json:"failed"`  // by error
	Unknown      map[string]int64 `json:"unknown"` // by reason
}

// noAnswer is the reason for records that were sent with acks=0.
const noAnswer = "acks=0 asks for no answer"

// outcomes gathers a Verdict; safe for concurrent use.
type outcomes struct {
	noAcks bool // acks=0: nil errors mean nothing

	acknowledged atomic.Int64

	mu      sync.Mutex
	failed  map[string]int64 // guarded by mu
	unknown map[string]int64 // guarded by mu
}

func newOutcomes(noAcks bool) *outcomes {
	return &outcomes{noAcks: noAcks, failed: map[string]int64{}, unknown: map[string]int64{}}
}

func (o *outcomes) add(err error) {
	if err == nil && !o.noAcks {
		o.acknowledged.Add(1) // all but always, so without the lock
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.unknown[noAnswer]++
	case refused(err):
		count(o.failed, errorName(err))
	default:
		count(o.unknown, errorName(err))
	}
}

// noAnswerYet is the reason for records that were given up without an answer or an error.
const noAnswerYet = "no answer within delivery.timeout.ms"

// unanswered counts records that nobody waits for any more.
func (o *outcomes) unanswered(n int64) {
	if n == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unknown[noAnswerYet] += n
}

// reasonsMax bounds the reasons that are told apart: texts of network errors have ports in them.
const reasonsMax = 32

func count(reasons map[string]int64, name string) {
	if _, ok := reasons[name]; !ok && len(reasons) >= reasonsMax {
		name = "other"
	}
	reasons[name]++
}

func (o *outcomes) verdict() Verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	v := Verdict{Acknowledged: o.acknowledged.Load(), Failed: maps.Clone(o.failed), Unknown: maps.Clone(o.unknown)}
	v.Sent = v.Acknowledged + sum(v.Failed) + sum(v.Unknown)
	return v
}

func sum(m map[string]int64) (n int64) {
	for _, count := range m {
		n += count
	}
	return n
}

// Err counts what was not acknowledged; nil when all was, or when no answers were asked for.
func (v Verdict) Err() error {
	unknown := sum(v.Unknown) - v.Unknown[noAnswer]
	if failed := sum(v.Failed); failed+unknown > 0 {
		return fmt.Errorf("%d of %d records were not acknowledged", failed+unknown, v.Sent)
	}
	return nil
}

// String is the verdict in one line.
func (v Verdict) String() string {
	parts := []string{fmt.Sprintf("%d sent, %d acknowledged", v.Sent, v.Acknowledged)}
	for _, kind := range []struct {
		name   string
		counts map[string]int64
	}{{"failed", v.Failed}, {"unknown", v.Unknown}} {
		text := fmt.Sprintf("%d %s", sum(kind.counts), kind.name)
		var reasons []string
		for _, reason := range slices.Sorted(maps.Keys(kind.counts)) {
			reasons = append(reasons, fmt.Sprintf("%d %s", kind.counts[reason], reason))
		}
		if len(reasons) > 0 {
			text += " (" + strings.Join(reasons, "; ") + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// refused reports whether the error is an answer that says the record was not written. Timeouts and lost leaderships do not say that.
func refused(err error) bool {
	var ke *kerr.Error
	if errors.As(err, &ke) {
		switch ke {
		case kerr.RequestTimedOut, kerr.NotLeaderForPartition, kerr.NotEnoughReplicasAfterAppend, kerr.NetworkException, kerr.UnknownServerError,
			kerr.KafkaStorageError, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.BrokerNotAvailable, kerr.ReplicaNotAvailable:
			return false
		}
		return true
	}
	return errors.Is(err, kgo.ErrMaxBuffered)
}

// errorName is what records of one error are counted under: Kafka's name of the code, or the client's text.
func errorName(err error) string {
	var ke *kerr.Error
	if errors.As(err, &ke) {
		return ke.Message
	}
	return err.Error()
}
