package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

const (
	// producerIDQueue bounds the InitProducerId requests that wait for the controller to hand out a block of ids.
	producerIDQueue = 1024
	// producerIDTimeout bounds the wait of one of them for the controller.
	producerIDTimeout = 10 * time.Second
)

var (
	errProducerIDInput    = errors.New("producer id and epoch must be given both or not at all, and a transactional id must not be empty")
	errNoTransactions     = errors.New("transactions are not available: there is no transaction coordinator")
	errProducerIDsPending = errors.New("no producer id is available yet")
)

// producerIDs answers InitProducerId requests. They queue for one goroutine, since every thousandth or so has to wait
// for the controller.
type producerIDs struct {
	allocate func(ctx context.Context) (int64, error)
	log      *zap.Logger
	requests chan *request
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// newProducerIDs starts the goroutine; allocate gives out one id, unique in the cluster, and may wait until ctx ends.
func newProducerIDs(allocate func(ctx context.Context) (int64, error), log *zap.Logger) *producerIDs {
	p := &producerIDs{allocate: allocate, log: log, requests: make(chan *request, producerIDQueue)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.running.Go(p.run)
	return p
}

// close fails what waits and ends the goroutine.
func (p *producerIDs) close() {
	p.cancel()
	p.running.Wait()
}

func (p *producerIDs) run() {
	for {
		select {
		case r := <-p.requests:
			p.serve(r)
		case <-p.ctx.Done():
			p.drain()
			return
		}
	}
}

// drain fails what is queued at the end. Later requests find the queue unread and fail at its bound, or their
// connection closes.
func (p *producerIDs) drain() {
	for {
		select {
		case r := <-p.requests:
			r.reply(initProducerIDError(errProducerIDsPending))
		default:
			return
		}
	}
}

func (p *producerIDs) serve(r *request) {
	ctx, cancel := context.WithTimeout(p.ctx, producerIDTimeout)
	defer cancel()
	id, err := p.allocate(ctx)
	if err != nil {
		p.log.Debug("no producer id", zap.Error(err))
		r.reply(initProducerIDError(fmt.Errorf("%w: %w", errProducerIDsPending, err)))
		return
	}
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ProducerID, resp.ProducerEpoch = id, 0
	r.reply(resp)
}

// handleInitProducerID answers InitProducerId for idempotent producers: a fresh producer id with epoch 0, whatever id
// and epoch the request carries. There are no transactions: a transactional id gets COORDINATOR_NOT_AVAILABLE, as
// FindCoordinator says, too.
func handleInitProducerID(b *Broker, r *request) {
	if err := checkInitProducerID(r.msg.(*kmsg.InitProducerIDRequest)); err != nil {
		r.reply(initProducerIDError(err))
		return
	}
	if b.producerIDs.ctx.Err() != nil {
		r.reply(initProducerIDError(errProducerIDsPending))
		return
	}
	select {
	case b.producerIDs.requests <- r:
	default:
		r.reply(initProducerIDError(errProducerIDsPending))
	}
}

func checkInitProducerID(req *kmsg.InitProducerIDRequest) error {
	switch {
	case (req.ProducerID == -1) != (req.ProducerEpoch == -1):
		return errProducerIDInput
	case req.TransactionalID == nil:
		return nil
	case *req.TransactionalID == "":
		return errProducerIDInput
	}
	return errNoTransactions
}

func initProducerIDError(err error) *kmsg.InitProducerIDResponse {
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = errorCode(err), -1, -1
	return resp
}
