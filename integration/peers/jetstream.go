package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// askTime bounds a question to the servers: one that comes while they have no leader is never answered.
const askTime = 5 * time.Second

// inFlight is how many records an asynchronous publisher may have unanswered, inFlightMany each of many.
const (
	inFlight     = 4096
	inFlightMany = 256
)

// natsClient is nats.go. A topic is as many streams as it has partitions, each on files, with a subject of the stream's name.
type natsClient struct {
	at    string
	nodes int
	nc    *nats.Conn
	js    jetstream.JetStream
}

func dialNATS(at []string, s system) (client, error) {
	c := &natsClient{at: strings.Join(at, ","), nodes: s.nodes}
	var err error
	c.nc, c.js, err = c.connect()
	return c, err
}

// connect makes a connection that comes back quickly when its server dies.
func (c *natsClient) connect() (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(c.at, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0), nats.Timeout(time.Second))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(2*inFlight))
	if err != nil {
		nc.Close()
	}
	return nc, js, err
}

func (c *natsClient) close() { c.nc.Close() }

func stream(topic string, partition int) string { return fmt.Sprintf("%s-%d", topic, partition) }

func (c *natsClient) create(ctx context.Context, topic string) error {
	for p := range partitions {
		name := stream(topic, p)
		if err := until(ctx, func() error {
			asking, cancel := context.WithTimeout(ctx, askTime)
			defer cancel()
			_, err := c.js.CreateOrUpdateStream(asking, jetstream.StreamConfig{Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage, Replicas: c.nodes})
			return err
		}); err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	return nil
}

func (c *natsClient) drop(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, partitions*askTime)
	defer cancel()
	var errs []error
	for p := range partitions {
		if err := c.js.DeleteStream(ctx, stream(topic, p)); !errors.Is(err, jetstream.ErrStreamNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (c *natsClient) leader(ctx context.Context, topic string, partition int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	s, err := c.js.Stream(ctx, stream(topic, partition))
	if err != nil {
		return 0, err
	}
	info, err := s.Info(ctx)
	if err != nil {
		return 0, err
	}
	node := 0
	if c.nodes == 1 {
		return 0, nil
	}
	if info.Cluster == nil || info.Cluster.Leader == "" {
		return 0, fmt.Errorf("stream %s has no leader", info.Config.Name)
	}
	_, err = fmt.Sscanf(info.Cluster.Leader, "n%d", &node)
	return node, err
}

func (c *natsClient) probe(ctx context.Context, topic string, partition int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := c.js.Publish(ctx, stream(topic, partition), []byte("probe"), jetstream.WithRetryAttempts(0))
	return err
}

func (c *natsClient) produce(ctx context.Context, topic string, p produceCell, length time.Duration) (*tally, error) {
	t := &tally{latency: newLatencies()}
	pattern := make([]byte, p.bytes)
	if _, err := rand.Read(pattern); err != nil {
		return nil, err
	}
	var records atomic.Int64
	ends := make(chan error, p.producers)
	var list []*publisher
	for i := range p.producers {
		nc, js, err := c.connect() // each one of its own, as with the others
		if err != nil {
			return nil, err
		}
		defer nc.Close()
		list = append(list, &publisher{js: js, topic: topic, cell: p, first: i, pattern: pattern, tally: t, records: &records})
	}
	begun := time.Now()
	for _, one := range list {
		go func() {
			if p.sync {
				ends <- one.one(ctx, begun, length)
			} else {
				ends <- one.many(ctx, begun, length)
			}
		}()
	}
	var errs []error
	for range list {
		errs = append(errs, <-ends)
	}
	t.elapsed = time.Since(begun)
	t.records = records.Load()
	t.bytes = t.records * int64(p.bytes)
	return t, errors.Join(errs...)
}

// publisher is one producer; it takes the streams in turn.
type publisher struct {
	js      jetstream.JetStream
	topic   string
	cell    produceCell
	first   int
	pattern []byte
	tally   *tally
	records *atomic.Int64
}

func (p *publisher) subject(n int) string { return stream(p.topic, (p.first+n)%partitions) }

// one has one record unanswered at a time.
func (p *publisher) one(ctx context.Context, begun time.Time, length time.Duration) error {
	for n := 0; ; n++ {
		at := p.cell.pace(begun, n)
		if at.Sub(begun) > length || ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := p.js.Publish(ctx, p.subject(n), stamped(p.pattern, at)); err != nil {
			return err
		}
		p.tally.latency.add(time.Since(at))
		p.records.Add(1)
	}
}

type unanswered struct {
	future   jetstream.PubAckFuture
	at       time.Time
	measured bool
}

// many has many records unanswered.
func (p *publisher) many(ctx context.Context, begun time.Time, length time.Duration) error {
	most := inFlight
	if p.cell.producers > 1 {
		most = inFlightMany
	}
	open := make(chan unanswered, most)
	var answers sync.WaitGroup
	var failed error
	answers.Go(func() {
		for u := range open {
			select {
			case <-u.future.Ok():
				p.records.Add(1)
				if u.measured {
					p.tally.latency.add(time.Since(u.at))
				}
			case err := <-u.future.Err():
				if failed == nil { // the first says what is wrong
					failed = err
				}
			case <-ctx.Done():
				failed = ctx.Err()
			}
		}
	})
	var err error
	for n, now := 0, begun; ; n++ {
		measured := p.cell.sampled(n)
		if measured {
			if now = p.cell.pace(begun, n); now.Sub(begun) > length || ctx.Err() != nil {
				break
			}
		}
		var f jetstream.PubAckFuture
		if f, err = p.js.PublishAsync(p.subject(n), stamped(p.pattern, now)); err != nil {
			break
		}
		open <- unanswered{f, now, measured}
	}
	close(open)
	answers.Wait()
	return errors.Join(err, failed)
}

// consume reads all streams with ordered consumers, which ask for the next records before they have the last.
func (c *natsClient) consume(ctx context.Context, topic string, stop func() bool, got func([]byte)) error {
	nc, js, err := c.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	for p := range partitions {
		var cons jetstream.Consumer
		if err := until(ctx, func() (err error) {
			asking, cancel := context.WithTimeout(ctx, askTime)
			defer cancel()
			cons, err = js.OrderedConsumer(asking, stream(topic, p), jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
			return err
		}); err != nil {
			return err
		}
		reading, err := cons.Consume(func(m jetstream.Msg) { got(m.Data()) }, jetstream.PullMaxMessages(5000))
		if err != nil {
			return err
		}
		defer reading.Stop()
	}
	for !stop() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
