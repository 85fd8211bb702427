package broker

import (
	"testing"
	"time"

	"cairn/internal/ids"
)

// BenchmarkPurgatoryWait measures one acks=all wait (park, wake, leave) beside 10,000 requests that go on waiting.
func BenchmarkPurgatoryWait(b *testing.B) {
	p := newPurgatory(purgatoryConfig{})
	defer p.close()
	var l watchList
	r := &reign{}
	l.open(nil, r, 0)
	far := time.Now().Add(time.Hour)
	others := make([]parkedRecorder, 10_000)
	for i := range others {
		others[i].watch.op, others[i].threshold = &others[i], 1<<60
		p.enter(&others[i].alarm, &others[i], far)
		l.add(&others[i].watch, r)
	}
	op := &parkedRecorder{}
	op.watch.op = op
	b.ReportAllocs()
	for hw := ids.Offset(1); b.Loop(); hw++ {
		op.threshold = hw
		p.enter(&op.alarm, op, far)
		l.add(&op.watch, r)
		l.reach(hw)
		p.leave(&op.alarm)
	}
}
