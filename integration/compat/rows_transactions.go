package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"cairn/integration/workload"
	"cairn/wire/batch"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const (
	transactionsCommand = "org.apache.kafka.tools.TransactionsCommand"
	consoleConsumer     = "org.apache.kafka.tools.consumer.ConsoleConsumer"
	transactionLog      = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
	transactProducer    = "cairn.Transact" // java/src/main/java/cairn/Transact.java
)

// transactionRows are the rows of transactions.
func (s *story) transactionRows() []row {
	const producer, tool = "Java transactional producer", "TransactionsCommand"
	return []row{
		{producer, "commits and aborts; the console consumer reads what is committed", s.commitsAndAborts},
		{producer, "the older of two with one transactional id is fenced", s.fencesTheOlder},
		{producer, "offsets of a group within a transaction", s.offsetsInTransactions},
		{tool, "list, with its filters", s.transactionsListed},
		{tool, "describe: an open transaction, one that has ended", s.transactionsDescribed},
		{tool, "forceTerminateTransaction", s.transactionTerminated},
		{tool, "describe-producers, find-hanging, abort of one that hangs", s.hangingAborted},
		{"ConsoleConsumer", "TransactionLogMessageFormatter reads __transaction_state", s.transactionLogRead},
	}
}

// transact runs steps of stock producers on the topic "ledger".
func (s *story) transact(steps ...string) answer {
	return s.kafka(s.ctx, transactProducer, append([]string{"ledger"}, steps...)...)
}

// wantsSteps is how all of the steps end, one by one.
func (a answer) wantsSteps(want ...string) error {
	if got := strings.Split(strings.TrimSpace(a.out), "\n"); a.code != 0 || strings.Join(got, ", ") != strings.Join(want, ", ") {
		return fmt.Errorf("steps %v, want %v: %s", got, want, a)
	}
	return nil
}

// committed compares what a stock consumer of committed records reads of the topic.
func (s *story) committed(want ...string) error {
	a := s.kafka(s.ctx, consoleConsumer, "--topic", "ledger", "--from-beginning", "--isolation-level", "read_committed",
		"--max-messages", fmt.Sprint(len(want)), "--timeout-ms", "20000")
	if got := strings.Fields(a.out); strings.Join(got, " ") != strings.Join(want, " ") {
		return fmt.Errorf("committed are %v, want %v: %s", got, want, a)
	}
	return nil
}

func (s *story) commitsAndAborts() error {
	ctx, cancel := context.WithTimeout(s.ctx, 30*time.Second)
	defer cancel()
	if err := workload.CreateTopic(ctx, s.c.Bootstrap(), "ledger", 1, 3, nil); err != nil {
		return err
	}
	return errors.Join(
		s.transact("p:init", "p:begin", "p:send:one", "p:send:two", "p:commit", "p:begin", "p:send:lost", "p:abort", "p:begin", "p:send:three", "p:commit").
			wantsSteps("p:init ok", "p:begin ok", "p:send:one ok", "p:send:two ok", "p:commit ok", "p:begin ok", "p:send:lost ok", "p:abort ok",
				"p:begin ok", "p:send:three ok", "p:commit ok"),
		s.committed("one", "two", "three"),
	)
}

func (s *story) fencesTheOlder() error {
	return errors.Join(
		s.transact("q.1:init", "q.1:begin", "q.1:send:zombie", "q.2:init", "q.2:begin", "q.2:send:four", "q.1:commit", "q.2:commit").
			wantsSteps("q.1:init ok", "q.1:begin ok", "q.1:send:zombie ok", "q.2:init ok", "q.2:begin ok", "q.2:send:four ok",
				"q.1:commit ProducerFencedException", "q.2:commit ok"),
		s.committed("one", "two", "three", "four"),
	)
}

func (s *story) offsetsInTransactions() error {
	group := func() answer { return s.kafka(s.ctx, groupCommand, "--describe", "--group", "auditors") }
	return errors.Join(
		s.transact("r:init", "r:begin", "r:send:five", "r:offsets:auditors:3", "r:commit", "r:begin", "r:offsets:auditors:1", "r:abort").
			wantsSteps("r:init ok", "r:begin ok", "r:send:five ok", "r:offsets:auditors:3 ok", "r:commit ok", "r:begin ok", "r:offsets:auditors:1 ok", "r:abort ok"),
		s.soon(func() error { return group().wants(0, "auditors        ledger          0          3  ") }),
	)
}

// soon tries again for a while: a transaction is answered before its markers are written.
func (s *story) soon(check func() error) error {
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	for {
		err := check()
		if err == nil || workload.Pause(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

func (s *story) transactions(args ...string) answer {
	return s.kafka(s.ctx, transactionsCommand, args...)
}

func (s *story) transactionsListed() error {
	if err := s.transact("open:init", "open:begin", "open:send:pending").wantsSteps("open:init ok", "open:begin ok", "open:send:pending ok"); err != nil {
		return err
	}
	of := []string{"--transactional-id-pattern", "o.*"}
	return errors.Join(
		s.transactions("list").wants(0, "TransactionalId", "CompleteCommit", "open "),
		s.soon(func() error { return sameLines(s.transactions("list"), s.cairn(s.ctx, "transactions list")) }),
		same(s.transactions(append([]string{"list"}, of...)...), s.cairn(s.ctx, "transactions list", of...)),
		s.transactions("list", "--duration-filter", "0").wants(0, "open ", "Ongoing"),
		s.transactions("list", "--duration-filter", "3600000", "--transactional-id-pattern", "open").wants(0, "TransactionalId"),
	)
}

// sameLines compares lines in any order: Kafka's tool lists by coordinator.
func sameLines(kafka, cairn answer) error {
	lines := map[string]int{}
	for _, l := range strings.Split(kafka.out, "\n") {
		lines[l]++
	}
	for _, l := range strings.Split(cairn.out, "\n") {
		lines[l]--
	}
	for _, n := range lines {
		if n != 0 {
			return same(kafka, cairn)
		}
	}
	return nil
}

func (s *story) transactionsDescribed() error {
	fresh := []string{"--transactional-id", "fresh"} // of one that had a transaction, the duration grows
	return errors.Join(
		s.transact("fresh:init").wantsSteps("fresh:init ok"),
		s.transactions("describe", "--transactional-id", "open").wants(0, "CoordinatorId", "TransactionDurationMs", "Ongoing", "60000", "ledger-0"),
		s.transactions("describe", "--transactional-id", "p").wants(0, "CompleteCommit"),
		s.transactions(append([]string{"describe"}, fresh...)...).wants(0, "Empty", "None"),
		same(s.transactions(append([]string{"describe"}, fresh...)...), s.cairn(s.ctx, "transactions describe", fresh...)),
	)
}

func (s *story) transactionTerminated() error {
	return errors.Join(
		s.transactions("forceTerminateTransaction", "--transactionalId", "open").wants(0),
		s.soon(func() error { return s.transactions("list", "--transactional-id-pattern", "open").wants(0, "Empty") }),
		s.committed("one", "two", "three", "four", "five"),
		s.transactions("forceTerminateTransaction", "--transactionalId", "stranger").wants(0), // it is made
		s.cairn(s.ctx, "transactions forceTerminateTransaction", "--transactionalId", "stranger-of-cairn").wants(0, "it is created"),
	)
}

// hangingAborted makes a transaction that no coordinator knows of, as a broker without verification takes it from a producer that has
// gone astray, and has Kafka's tool find and abort it.
func (s *story) hangingAborted() error {
	set := func(value string) error {
		return s.config("--alter", "--entity-type", "brokers", "--entity-default", "--add-config", "transaction.partition.verification.enable="+value).wants(0)
	}
	if err := set("false"); err != nil {
		return err
	}
	start, err := s.stray(4711)
	if err := errors.Join(err, set("true")); err != nil {
		return err
	}
	at := []string{"--topic", "ledger", "--partition", "0"}
	hanging := s.transactions("find-hanging", "--topic", "ledger")
	producers := func() answer { return s.transactions(append([]string{"describe-producers"}, at...)...) }
	return errors.Join(
		hanging.wants(0, "Topic \tPartition\tProducerId", "ledger\t0        \t4711 "), same(hanging, s.cairn(s.ctx, "transactions find-hanging", "--topic", "ledger")),
		producers().wants(0, "ProducerId", "LastSequence", "4711 ", fmt.Sprintf("\t%d ", start)),
		sameLines(producers(), s.cairn(s.ctx, "transactions describe-producers", at...)),
		s.transactions(append([]string{"abort", "--start-offset", fmt.Sprint(start)}, at...)...).wants(0),
		s.transactions("find-hanging", "--topic", "ledger").wants(0, "Topic"),
		s.cairn(s.ctx, "transactions find-hanging", "--topic", "ledger", "--json").wants(0, "[]"),
		s.transact("p:init", "p:begin", "p:send:six", "p:commit").wantsSteps("p:init ok", "p:begin ok", "p:send:six ok", "p:commit ok"),
		s.committed("one", "two", "three", "four", "five", "six"),
	)
}

// stray sends a transactional batch of a producer that no coordinator knows, twenty minutes old, and returns its offset.
func (s *story) stray(producerID int64) (int64, error) {
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.Produce), 9) // the last one that names topics; from 12 on the partition would be added
	cl, err := kgo.NewClient(append(workload.ClientOptions(s.c.Bootstrap()), kgo.MaxVersions(versions))...)
	if err != nil {
		return -1, err
	}
	defer cl.Close()
	cfg := batch.NewBuilderConfig(batch.CodecNone, time.Now().Add(-20*time.Minute).UnixMilli())
	cfg.ProducerID, cfg.ProducerEpoch, cfg.BaseSequence, cfg.Transactional = producerID, 0, 0, true
	b, err := batch.NewBuilder(cfg)
	if err != nil {
		return -1, err
	}
	if err := b.AppendKV(cfg.BaseTimestamp, nil, []byte("astray")); err != nil {
		return -1, err
	}
	req := kmsg.NewPtrProduceRequest()
	id := "astray"
	req.Acks, req.TimeoutMillis, req.TransactionID = -1, 10000, &id
	rp := kmsg.NewProduceRequestTopicPartition()
	if rp.Records, err = b.Build(); err != nil {
		return -1, err
	}
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.Partitions = "ledger", append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	for {
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return -1, err
		}
		p := resp.Topics[0].Partitions[0]
		if err = kerr.ErrorForCode(p.ErrorCode); !errors.Is(err, kerr.NotLeaderForPartition) {
			return p.BaseOffset, err
		}
		cl.ForceMetadataRefresh() // the leader has moved; the batch was refused as a whole
		if err := workload.Pause(ctx, 200*time.Millisecond); err != nil {
			return -1, err
		}
	}
}

func (s *story) transactionLogRead() error {
	a := s.kafka(s.ctx, consoleConsumer, "--topic", "__transaction_state", "--formatter", transactionLog, "--from-beginning", "--timeout-ms", "5000")
	for _, part := range []string{
		`"transactionalId":"p"`, `"transactionTimeoutMs":60000`, `"transactionStatus":4`, `"transactionStatus":5`,
		`"transactionPartitions":[{"topic":"ledger","partitionIds":[0]}]`,
	} {
		if !strings.Contains(a.out, part) {
			return fmt.Errorf("%s is not in what the formatter prints: %s", part, a)
		}
	}
	return nil
}
