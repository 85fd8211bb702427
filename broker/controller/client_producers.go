package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// producerIDs is the broker's stock of producer ids: the block in use, and the next one, fetched when half is gone.
type producerIDs struct {
	mu       *sync.Mutex
	next     int64         // guarded by mu; the next id to give out
	end      int64         // guarded by mu; exclusive
	spare    idBlock       // guarded by mu; len 0: none
	fetching chan struct{} // guarded by mu; closed when the fetch under way ends, nil if none is
	err      error         // guarded by mu; of the last fetch
	running  *sync.WaitGroup
}

type idBlock struct {
	start int64
	n     int32
}

func newProducerIDs() producerIDs {
	return producerIDs{mu: &sync.Mutex{}, running: &sync.WaitGroup{}}
}

func (p *producerIDs) wait() { p.running.Wait() }

// AllocateProducerID returns a producer id that was never given out in this cluster. Mostly from memory; it waits for the
// controller only when it has none left, and returns an error, with nothing allocated, if the wait failed.
func (c *Client) AllocateProducerID(ctx context.Context) (int64, error) {
	p := &c.producers
	for {
		p.mu.Lock()
		if p.next == p.end && p.spare.n > 0 {
			p.next, p.end, p.spare = p.spare.start, p.spare.start+int64(p.spare.n), idBlock{}
		}
		have := p.next < p.end
		var id int64
		if have {
			id = p.next
			p.next++
		}
		if p.end-p.next <= producerIDBlock/2 && p.spare.n == 0 && p.fetching == nil && c.ctx.Err() == nil {
			p.fetching = make(chan struct{})
			p.running.Go(c.fetchProducerIDs)
		}
		fetching := p.fetching
		p.mu.Unlock()
		if have {
			return id, nil
		}
		if err := c.awaitProducerIDs(ctx, fetching); err != nil {
			return 0, fmt.Errorf("allocate producer id: %w", err)
		}
	}
}

// awaitProducerIDs waits until the fetch has ended and returns its error.
func (c *Client) awaitProducerIDs(ctx context.Context, fetching <-chan struct{}) error {
	select {
	case <-fetching:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.ctx.Done():
		return ErrClosed
	}
	c.producers.mu.Lock()
	defer c.producers.mu.Unlock()
	return c.producers.err
}

// producerIDsWithin bounds one fetch of a block.
const producerIDsWithin = 30 * time.Second

func (c *Client) fetchProducerIDs() {
	block, err := c.requestProducerIDs()
	p := &c.producers
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.fetching)
	p.fetching, p.spare, p.err = nil, block, err
}

func (c *Client) requestProducerIDs() (idBlock, error) {
	ctx, cancel := context.WithTimeout(c.ctx, producerIDsWithin)
	defer cancel()
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = int32(c.cfg.NodeID), c.Registration().BrokerEpoch
	resp, err := c.retry(ctx, c.data, req)
	if err != nil {
		return idBlock{}, err
	}
	r := resp.(*kmsg.AllocateProducerIDsResponse)
	if r.ErrorCode != 0 || r.ProducerIDLen <= 0 {
		return idBlock{}, fmt.Errorf("controller: %w", kerr.ErrorForCode(r.ErrorCode))
	}
	return idBlock{r.ProducerIDStart, r.ProducerIDLen}, nil
}
