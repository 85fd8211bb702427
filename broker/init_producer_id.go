package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/txn"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

const (
	// producerIDQueue bounds those that wait for the controller to hand out a block of ids.
	producerIDQueue = 1024
	// producerIDTimeout bounds the wait of one of them for the controller.
	producerIDTimeout = 10 * time.Second
)

var (
	errProducerIDInput    = errors.New("producer id and epoch must be given both or not at all, and a transactional id must not be empty")
	errProducerIDsPending = errors.New("no producer id is available yet")
)

// producerIDs gives out producer ids. Those who want one queue for one goroutine, since every thousandth or so has to wait
// for the controller.
type producerIDs struct {
	allocate func(ctx context.Context) (int64, error)
	log      *zap.Logger
	wanted   chan func(int64, error)
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// newProducerIDs starts the goroutine; allocate gives out one id, unique in the cluster, and may wait until ctx ends.
func newProducerIDs(allocate func(ctx context.Context) (int64, error), log *zap.Logger) *producerIDs {
	p := &producerIDs{allocate: allocate, log: log, wanted: make(chan func(int64, error), producerIDQueue)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.running.Go(p.run)
	return p
}

// next has done hear of a fresh producer id, or why there is none: once, perhaps at once. It does not block.
func (p *producerIDs) next(done func(id int64, err error)) {
	if p.ctx.Err() != nil {
		done(-1, errProducerIDsPending)
		return
	}
	select {
	case p.wanted <- done:
	default:
		done(-1, errProducerIDsPending)
	}
}

// close fails what waits and ends the goroutine.
func (p *producerIDs) close() {
	p.cancel()
	p.running.Wait()
}

func (p *producerIDs) run() {
	for {
		select {
		case done := <-p.wanted:
			p.serve(done)
		case <-p.ctx.Done():
			p.drain()
			return
		}
	}
}

// drain fails what is queued at the end. Later ones find the queue unread and fail at its bound, or their connection closes.
func (p *producerIDs) drain() {
	for {
		select {
		case done := <-p.wanted:
			done(-1, errProducerIDsPending)
		default:
			return
		}
	}
}

func (p *producerIDs) serve(done func(int64, error)) {
	ctx, cancel := context.WithTimeout(p.ctx, producerIDTimeout)
	defer cancel()
	id, err := p.allocate(ctx)
	if err != nil {
		p.log.Debug("no producer id", zap.Error(err))
		done(-1, fmt.Errorf("%w: %w", errProducerIDsPending, err))
		return
	}
	done(id, nil)
}

// initFenced is the first version of InitProducerId whose clients know PRODUCER_FENCED.
const initFenced = 4

// handleInitProducerID answers InitProducerId. Without a transactional id that is a fresh producer id with epoch 0, whatever
// id and epoch the request carries; with one the transaction coordinator decides.
func handleInitProducerID(b *Broker, r *request) {
	req := r.msg.(*kmsg.InitProducerIDRequest)
	reply := func(p txn.Producer, err error) {
		resp := kmsg.NewPtrInitProducerIDResponse()
		resp.ProducerID, resp.ProducerEpoch = p.ID, p.Epoch
		if err != nil {
			resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = txnErrorCode(err, req.Version >= initFenced), -1, -1
		}
		r.reply(resp)
	}
	if err := checkInitProducerID(req); err != nil {
		reply(txn.Producer{}, err)
		return
	}
	if req.TransactionalID == nil {
		b.producerIDs.next(func(id int64, err error) { reply(txn.Producer{ID: id}, err) })
		return
	}
	init := txn.InitRequest{
		ID: *req.TransactionalID, TimeoutMs: req.TransactionTimeoutMillis, Expected: txn.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
	}
	b.withProducerID(func(fresh txn.Fresh, reply func(txn.Producer, error)) {
		init := init
		init.Fresh = fresh
		b.txns.Do(init.ID,
			func(m *txn.Machine, now time.Time, fx *coordinator.Effects) { m.InitProducerID(init, now, fx, reply) },
			func(err error) { reply(txn.Producer{}, err) })
	}, reply)
}

func checkInitProducerID(req *kmsg.InitProducerIDRequest) error {
	if (req.ProducerID == -1) != (req.ProducerEpoch == -1) || req.TransactionalID != nil && *req.TransactionalID == "" {
		return errProducerIDInput
	}
	return nil
}
