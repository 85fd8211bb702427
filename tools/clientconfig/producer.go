package clientconfig

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// maxInFlightIdempotent is how many requests in flight a partition's five remembered batches allow; franz-go always uses it with idempotence.
const maxInFlightIdempotent = 5

// recordOverhead is more than the bytes that a batch needs beside the largest record in it.
const recordOverhead = 256

// metadataMinAge is the shortest time between two looks at the cluster that franz-go takes.
const metadataMinAge = 10 * time.Millisecond

// producerTable is the producer's properties of Kafka 4.3 with their defaults, sorted by name.
func producerTable() []property {
	return []property{
		{name: "acks", def: "all", check: oneOf("all", "-1", "0", "1")},
		{name: "batch.size", def: "16384", check: atLeast(0)},
		{name: "bootstrap.servers", check: anything},
		{name: "buffer.memory", def: "33554432", check: between(1, math.MaxInt64)},
		{name: "client.id", check: anything},
		{name: "compression.type", def: "none", check: oneOf("none", "gzip", "snappy", "lz4", "zstd")},
		{name: "connections.max.idle.ms", def: "540000", check: atLeast(1)},
		{name: "delivery.timeout.ms", def: "120000", check: atLeast(0)},
		{name: "enable.idempotence", def: "true", check: boolean},
		{name: "linger.ms", def: "5", check: atLeast(0)},
		{name: "max.block.ms", def: "60000", check: between(0, math.MaxInt64), inert: true},
		{name: "max.in.flight.requests.per.connection", def: "5", check: atLeast(1)},
		{name: "max.request.size", def: "1048576", check: atLeast(1024)},
		{name: "metadata.max.age.ms", def: "300000", check: atLeast(1)},
		{name: "partitioner.ignore.keys", def: "false", check: boolean},
		{name: "receive.buffer.bytes", def: "32768", check: atLeast(-1), inert: true},
		{name: "reconnect.backoff.max.ms", def: "1000", check: atLeast(0), inert: true},
		{name: "reconnect.backoff.ms", def: "50", check: atLeast(0), inert: true},
		{name: "request.timeout.ms", def: "30000", check: atLeast(1)},
		{name: "retries", def: "2147483647", check: atLeast(0)},
		{name: "retry.backoff.max.ms", def: "1000", check: atLeast(0)},
		{name: "retry.backoff.ms", def: "100", check: atLeast(0)},
		{name: "security.protocol", def: "PLAINTEXT", check: plaintext},
		{name: "send.buffer.bytes", def: "131072", check: atLeast(-1), inert: true},
		{name: "transaction.timeout.ms", def: "60000", check: atLeast(1)},
		{name: "transactional.id", check: anything},
	}
}

// Producer is a checked configuration of a producer. Its zero value is not valid; ParseProducer makes it.
type Producer struct {
	settings
	Acks            string // all, 1 or 0
	Idempotent      bool
	TransactionalID string // empty: none
	Linger          time.Duration
	RequestTimeout  time.Duration
	DeliveryTimeout time.Duration // raised to linger plus request timeout when nobody set it
	BufferMemory    int           // bytes
	Notes           []string      // what was decided for the user, such as idempotence switched off by acks=1
}

// ParseProducer checks properties by Kafka's rules. Names without effect are in Warnings; the error joins all that is wrong.
func ParseProducer(given map[string]string) (Producer, error) {
	s, err := parse(producerTable(), given)
	if err != nil {
		return Producer{}, err
	}
	p := Producer{
		settings: s, Acks: s.values["acks"], Idempotent: s.bool("enable.idempotence"), TransactionalID: s.values["transactional.id"],
		Linger: s.ms("linger.ms"), RequestTimeout: s.ms("request.timeout.ms"), DeliveryTimeout: s.ms("delivery.timeout.ms"),
		BufferMemory: s.int("buffer.memory"),
	}
	if p.Acks == "-1" {
		p.Acks = "all"
	}
	if err := errors.Join(p.settleIdempotence(), p.settleDeliveryTimeout()); err != nil {
		return Producer{}, err
	}
	return p, nil
}

// settleIdempotence applies Kafka's rules: what was asked for by name must be possible; the default gives way, except to too many requests in flight.
func (p *Producer) settleIdempotence() error {
	asked := p.isGiven("enable.idempotence")
	var errs []error
	if p.Idempotent {
		reason := ""
		switch {
		case p.int("retries") == 0:
			reason = "retries=0: an idempotent producer needs retries"
		case p.Acks != "all":
			reason = fmt.Sprintf("acks=%s: an idempotent producer needs acks=all", p.Acks)
		}
		switch {
		case reason != "" && asked:
			errs = append(errs, fmt.Errorf("enable.idempotence=true excludes %s; change it, or set enable.idempotence=false", reason))
		case reason != "":
			p.Idempotent, p.values["enable.idempotence"] = false, "false"
			p.Notes = append(p.Notes, "idempotence is off because of "+reason)
		}
	}
	if n := p.int("max.in.flight.requests.per.connection"); p.Idempotent && n > maxInFlightIdempotent {
		errs = append(errs, fmt.Errorf("max.in.flight.requests.per.connection=%d: an idempotent producer may have at most %d; "+
			"lower it, or set enable.idempotence=false", n, maxInFlightIdempotent))
	}
	if p.TransactionalID != "" && !p.Idempotent {
		errs = append(errs, fmt.Errorf("transactional.id=%s needs an idempotent producer: acks=all, retries above 0, enable.idempotence=true", p.TransactionalID))
	}
	return errors.Join(errs...)
}

func (p *Producer) settleDeliveryTimeout() error {
	least := p.Linger + p.RequestTimeout
	if p.DeliveryTimeout >= least {
		return nil
	}
	if p.isGiven("delivery.timeout.ms") {
		return fmt.Errorf("delivery.timeout.ms=%d must be at least linger.ms + request.timeout.ms = %d",
			p.DeliveryTimeout.Milliseconds(), least.Milliseconds())
	}
	p.DeliveryTimeout = least
	p.values["delivery.timeout.ms"] = fmt.Sprint(least.Milliseconds())
	return nil
}

// Warnings tell which properties have no effect, or another one than with Kafka's client.
func (p Producer) Warnings() []string {
	out := p.warnings()
	if n := p.int("max.in.flight.requests.per.connection"); p.Idempotent && n != maxInFlightIdempotent {
		out = append(out, fmt.Sprintf("max.in.flight.requests.per.connection=%d: with idempotence there are always %d here", n, maxInFlightIdempotent))
	}
	return out
}

// Options are the options of a franz-go client. recordMax is the size in bytes of the largest record: batch.size is raised to hold it, as Kafka's
// producer gives a large record a batch of its own.
func (p Producer) Options(recordMax int) []kgo.Opt {
	batchMax := min(max(p.int("batch.size"), recordMax+recordOverhead, 512), max(p.int("max.request.size"), 512))
	opts := []kgo.Opt{
		p.acksOption(), p.codecOption(), kgo.ProducerLinger(p.Linger), kgo.ProduceRequestTimeout(p.RequestTimeout),
		kgo.RequestTimeoutOverhead(min(max(p.RequestTimeout, time.Second), 10*time.Second)), kgo.RecordDeliveryTimeout(p.DeliveryTimeout),
		kgo.MaxBufferedBytes(p.BufferMemory), kgo.MaxBufferedRecords(math.MaxInt32), kgo.ProducerBatchMaxBytes(int32(batchMax)),
		kgo.RecordPartitioner(kgo.UniformBytesPartitioner(batchMax, true, !p.bool("partitioner.ignore.keys"), nil)),
		kgo.RetryBackoffFn(backoff(p.ms("retry.backoff.ms"), p.ms("retry.backoff.max.ms"))),
		// A refused batch is sent again once the client has looked for its leader anew, which is not to take longer than the back-off.
		kgo.MetadataMinAge(min(max(p.ms("retry.backoff.ms"), metadataMinAge), p.ms("metadata.max.age.ms"))),
		kgo.MetadataMaxAge(p.ms("metadata.max.age.ms")), kgo.ConnIdleTimeout(p.ms("connections.max.idle.ms")),
	}
	if !p.Idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(p.int("max.in.flight.requests.per.connection")))
	}
	if n := p.int("retries"); n < math.MaxInt32 {
		opts = append(opts, kgo.RecordRetries(n))
	}
	if p.TransactionalID != "" {
		opts = append(opts, kgo.TransactionalID(p.TransactionalID), kgo.TransactionTimeout(p.ms("transaction.timeout.ms")))
	}
	if id := p.values["client.id"]; id != "" {
		opts = append(opts, kgo.ClientID(id))
	}
	return opts
}

func (p Producer) acksOption() kgo.Opt {
	switch p.Acks {
	case "0":
		return kgo.RequiredAcks(kgo.NoAck())
	case "1":
		return kgo.RequiredAcks(kgo.LeaderAck())
	default:
		return kgo.RequiredAcks(kgo.AllISRAcks())
	}
}

func (p Producer) codecOption() kgo.Opt {
	codec := kgo.NoCompression()
	switch p.values["compression.type"] {
	case "gzip":
		codec = kgo.GzipCompression()
	case "snappy":
		codec = kgo.SnappyCompression()
	case "lz4":
		codec = kgo.Lz4Compression()
	case "zstd":
		codec = kgo.ZstdCompression()
	}
	return kgo.ProducerBatchCompression(codec)
}

// backoff doubles from first to most, with a fifth of jitter, as Kafka's clients do.
func backoff(first, most time.Duration) func(int) time.Duration {
	return func(tries int) time.Duration {
		d := first << min(max(tries-1, 0), 20)
		d = max(min(d, most), min(first, most))
		return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
	}
}
