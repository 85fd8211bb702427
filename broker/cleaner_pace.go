package broker

import (
	"context"
	"time"

	"cairn/internal/clock"
)

// The cleaner works in goes and rests in between. While others save or read records its goes are short and its rests long, so that it has a fifth of
// a processor for each thread, and no request finds it in its way for longer than a go. When nobody does it has four fifths.
const (
	cleanerGo      = 500 * time.Microsecond
	cleanerRest    = 4 // goes
	cleanerIdleGo  = 5 * time.Millisecond
	cleanerIdleFor = 200 * time.Millisecond // so long nobody must have used the store
	cleanerOwedMax = 60 * time.Second       // longest rest for log.cleaner.io.max.bytes.per.second
	cleanerLook    = 100 * time.Millisecond // how often a pass looks whether it may go on, while log.cleaner.threads is 0
)

// cleanerPace keeps a pass slow enough for everything else. It belongs to one goroutine.
type cleanerPace struct {
	ctx      context.Context
	uses     func() int64 // how often others have used the store
	settings func() cleanerSettings

	used     int64     // uses at the last look
	lastUsed time.Time // when that had changed
	began    time.Time // of the present go
	bytes    int       // read and written in it
}

func newCleanerPace(ctx context.Context, uses func() int64, settings func() cleanerSettings) *cleanerPace {
	now := clock.Now()
	return &cleanerPace{ctx: ctx, uses: uses, settings: settings, used: uses(), lastUsed: now, began: now}
}

// wait rests when a go is over, in which bytes more have been read and written, and for as long as there is to be no cleaner.
func (k *cleanerPace) wait(bytes int) error {
	k.bytes += bytes
	now := clock.Now()
	if used := k.uses(); used != k.used {
		k.used, k.lastUsed = used, now
	}
	worked := now.Sub(k.began)
	rest := cleanerRest * worked
	if now.Sub(k.lastUsed) > cleanerIdleFor {
		if worked < cleanerIdleGo {
			return nil
		}
		rest = worked / cleanerRest
	} else if worked < cleanerGo {
		return nil
	}
	s := k.settings()
	owed := min(float64(k.bytes)*float64(s.Threads)/max(s.BytesPerSecond, 1), cleanerOwedMax.Seconds())
	err := k.rest(max(rest, time.Duration(owed*float64(time.Second))-worked))
	for err == nil && k.settings().Threads == 0 {
		err = k.rest(cleanerLook)
	}
	k.began, k.bytes = clock.Now(), 0
	return err
}

func (k *cleanerPace) rest(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-k.ctx.Done():
		return k.ctx.Err()
	}
}
