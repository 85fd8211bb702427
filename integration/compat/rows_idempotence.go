package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

const (
	idempotenceStory = "idempotent producer on a bad network"
	// idempotentRecords is how many records the Java producer writes, unless a run asks for more.
	idempotentRecords = 20_000
	// idempotentPartitions is over how many partitions it spreads them.
	idempotentPartitions = 3
)

// idempotence has the stock Java producer, five requests in flight, write to three brokers over connections that break at any byte, while
// leaders are killed: each record is there once, and in order.
func (r *runner) idempotence(ctx context.Context, binary string) error {
	s := badStory{records: r.inflight, timeout: clientTimeout * time.Duration(1+r.inflight/idempotentRecords)}
	ctx, cancel := context.WithTimeout(ctx, s.timeout+time.Minute)
	defer cancel()
	err, before := s.open(ctx, binary), r.failed
	if err == nil {
		r.check(idempotenceStory, "VerifiableProducer", "each record once and in order", func() error { return s.run(ctx, r.classes) })
	}
	if s.c != nil && (err != nil || r.failed > before) {
		s.c.Keep()
		fmt.Println("data and logs are kept in", s.c.Dir)
	}
	return errors.Join(err, s.close())
}

// badStory is a cluster whose clients reach the brokers over bad ways.
type badStory struct {
	c       *harness.Cluster
	fronts  []*badFront
	network interface{ Close() error }
	records int           // to be written
	timeout time.Duration // of the producer's process
}

func (s *badStory) open(ctx context.Context, binary string) error {
	c, net, err := harness.Networked(binary, harness.Shape{Brokers: 3, Controllers: 1})
	s.c, s.network = c, net
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	for _, n := range c.Brokers() {
		f, err := openBadFront(n.Addr, rng.Uint64())
		if err != nil {
			return err
		}
		s.fronts = append(s.fronts, f)
		n.Props["advertised.listeners"] = strings.Replace(n.Props["advertised.listeners"], "CLIENT://"+n.Addr, "CLIENT://"+f.address(), 1)
	}
	startCtx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return c.Start(startCtx)
}

func (s *badStory) close() error {
	var errs []error
	if s.c != nil {
		errs = append(errs, s.c.Close())
	}
	for _, f := range s.fronts {
		errs = append(errs, f.close())
	}
	if s.network != nil {
		errs = append(errs, s.network.Close())
	}
	return errors.Join(errs...)
}

func (s *badStory) run(ctx context.Context, classes string) error {
	bootstrap := make([]string, len(s.fronts))
	for i, f := range s.fronts {
		bootstrap[i] = f.address()
	}
	if err := workload.CreateTopic(ctx, bootstrap, "five", idempotentPartitions, 3, nil); err != nil {
		return err
	}
	props := filepath.Join(s.c.Dir, "producer.properties")
	text := "enable.idempotence=true\nacks=all\nretries=2147483647\nmax.in.flight.requests.per.connection=5\nbatch.size=2000\nlinger.ms=0\n" +
		"retry.backoff.ms=20\nreconnect.backoff.ms=20\nreconnect.backoff.max.ms=200\nrequest.timeout.ms=3000\ndelivery.timeout.ms=120000\n"
	if err := os.WriteFile(props, []byte(text), 0o600); err != nil {
		return err
	}
	box, err := openToolbox(ctx, classes)
	if err != nil {
		return err
	}
	box.timeout = s.timeout
	for _, f := range s.fronts {
		f.worsen()
	}
	stop := make(chan struct{})
	var killer sync.WaitGroup
	var kills int
	var killErr error
	killer.Go(func() { kills, killErr = s.kill(ctx, bootstrap, stop) })
	a, err := box.run(ctx, "", "org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", strings.Join(bootstrap, ","), "--topic", "five",
		"--max-messages", strconv.Itoa(s.records), "--throughput", "2500", "--acks", "-1", "--command-config", props)
	close(stop)
	killer.Wait()
	if err := errors.Join(err, killErr, box.close()); err != nil {
		return err
	}
	if a.code != 0 || strings.Contains(a.out, "producer_send_error") {
		return fmt.Errorf("the producer gave up: %.2000s", a.String())
	}
	cuts := 0
	for _, f := range s.fronts {
		f.heal()
		cuts += f.cuts()
	}
	if cuts < 10 || kills < 1 {
		return fmt.Errorf("too little happened: %d connections cut, %d kills", cuts, kills)
	}
	fmt.Printf("     %d records, %d connections cut, %d kills\n", s.records, cuts, kills)
	return s.inOrder(ctx, bootstrap)
}

// inOrder checks that the topic has each of the numbers from 0 on once, and each partition has its own in order.
func (s *badStory) inOrder(ctx context.Context, bootstrap []string) error {
	records, err := workload.Read(ctx, bootstrap, "five")
	if err != nil {
		return err
	}
	last, seen := [idempotentPartitions]int{}, make([]bool, s.records)
	for _, rec := range records {
		n, err := strconv.Atoi(string(rec.Value))
		switch {
		case err != nil || n < 0 || n >= s.records:
			return fmt.Errorf("%d-%d has %q, which nobody sent", rec.Partition, rec.Offset, rec.Value)
		case seen[n]:
			return fmt.Errorf("%d-%d has record %d, which is there twice", rec.Partition, rec.Offset, n)
		case n < last[rec.Partition]:
			return fmt.Errorf("%d-%d has record %d behind record %d", rec.Partition, rec.Offset, n, last[rec.Partition])
		}
		seen[n], last[rec.Partition] = true, n
	}
	if len(records) != s.records {
		return fmt.Errorf("%d records of %d; the first that is missing is %d", len(records), s.records, slices.Index(seen, false))
	}
	return nil
}

// kill kills a leader of the topic every two seconds and starts it again.
func (s *badStory) kill(ctx context.Context, bootstrap []string, stop <-chan struct{}) (kills int, err error) {
	for {
		select {
		case <-stop:
			return kills, nil
		case <-time.After(2 * time.Second):
		}
		leaders, err := workload.Leaders(ctx, bootstrap, "five")
		leader := leaders[int32(kills%idempotentPartitions)]
		if err != nil || leader <= 0 {
			continue
		}
		n := s.c.Node(int(leader))
		if err := errors.Join(n.Kill(), n.Start()); err != nil {
			return kills, err
		}
		kills++
		if _, err := n.WaitReady(ctx); err != nil {
			return kills, err
		}
	}
}
