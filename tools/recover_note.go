package tools

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"cairn/wire/private"
)

// ErrRecovered means that all that is in quarantine was recovered before.
var ErrRecovered = errors.New("already recovered")

// asker asks some broker.
type asker = func(context.Context, kmsg.Request) (kmsg.Response, error)

// recoveredBefore returns what the cluster has noted as recovered. Nothing if it is to be recovered again.
func (o RecoverOptions) recoveredBefore(ctx context.Context, ask asker) (before []Loss, err error) {
	if o.Again {
		return nil, nil
	}
	answer, err := ask(ctx, &private.LossesRequest{Body: private.LossQuery{Topic: o.Topic, Partition: o.Partition}})
	if err != nil {
		return nil, fmt.Errorf("what was recovered before: %w", err)
	}
	for _, l := range answer.(*private.LossesResponse).Body.Losses {
		if l.RecoveredTo != "" && l.Merged == 0 {
			before = append(before, l)
		}
	}
	return before, nil
}

// isRecovered reports whether the offsets were recovered before.
func (p *reproducer) isRecovered(r LostRange) bool {
	for i, l := range p.before {
		if l.LeaderEpoch == r.LeaderEpoch && l.From <= r.From && r.To <= l.To {
			p.again = &p.before[i]
			return true
		}
	}
	return false
}

// note has the cluster remember what was recovered.
func (p *reproducer) note(ctx context.Context, ask asker) error {
	if p.done.Ranges == nil {
		return nil
	}
	answer, err := ask(ctx, &private.RecoveredRequest{Body: private.RecoveredRanges{
		Topic: p.o.Topic, Partition: p.o.Partition, Ranges: p.done.Ranges, To: p.o.To,
	}})
	if err == nil {
		body := answer.(*private.RecoveredResponse).Body
		err = brokerError(body.Code, &body.Message)
	}
	if err != nil {
		return fmt.Errorf("the records were produced to %s, but the cluster could not note that, so that a second run produces them again: %w", p.o.To, err)
	}
	return nil
}

// made is what was recovered now, as another source of the same records is to see it.
func (p *reproducer) made() (list []Loss) {
	if p.o.Again {
		return nil
	}
	for _, r := range p.done.Ranges {
		list = append(list, Loss{LostRange: r, RecoveredTo: p.o.To, RecoveredMs: time.Now().UnixMilli()})
	}
	return list
}
