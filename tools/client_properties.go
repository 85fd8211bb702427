package tools

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/internal/properties"
)

// properties reads the command configuration file and lays the single properties over it.
func (c Connection) properties() (map[string]string, error) {
	props := map[string]string{}
	if c.CommandConfig != "" {
		text, err := os.ReadFile(c.CommandConfig)
		if err != nil {
			return nil, fmt.Errorf("command configuration: %w", err)
		}
		list, err := properties.Parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("command configuration %s: %w", c.CommandConfig, err)
		}
		props = list.Map()
	}
	if err := splitPairs(props, c.Properties, "client property"); err != nil {
		return nil, err
	}
	return props, nil
}

// splitPairs adds each "key=value" of pairs to m; later ones win. what names the pair in errors.
func splitPairs(m map[string]string, pairs []string, what string) error {
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if k = strings.TrimSpace(k); !ok || k == "" {
			return fmt.Errorf("%s %q: want NAME=VALUE", what, p)
		}
		m[k] = v
	}
	return nil
}

// propertyOption turns the value of a client property into options; it gets all properties for those that work together.
type propertyOption func(value string, all map[string]string) ([]kgo.Opt, error)

// clientPropertyTable is the client properties of Kafka that have an effect on the tools.
func clientPropertyTable() map[string]propertyOption {
	return map[string]propertyOption{
		"bootstrap.servers":         func(string, map[string]string) ([]kgo.Opt, error) { return nil, nil }, // used by open
		"enable.idempotence":        func(string, map[string]string) ([]kgo.Opt, error) { return nil, nil }, // used by acks
		"client.id":                 func(v string, _ map[string]string) ([]kgo.Opt, error) { return []kgo.Opt{kgo.ClientID(v)}, nil },
		"security.protocol":         securityOption,
		"request.timeout.ms":        durationOption(kgo.RequestTimeoutOverhead),
		"metadata.max.age.ms":       metadataAgeOption,
		"connections.max.idle.ms":   durationOption(kgo.ConnIdleTimeout),
		"delivery.timeout.ms":       durationOption(kgo.RecordDeliveryTimeout),
		"linger.ms":                 durationOption(kgo.ProducerLinger),
		"fetch.max.wait.ms":         durationOption(kgo.FetchMaxWait),
		"retries":                   intOption(kgo.RecordRetries),
		"max.request.size":          int32Option(kgo.ProducerBatchMaxBytes),
		"fetch.min.bytes":           int32Option(kgo.FetchMinBytes),
		"fetch.max.bytes":           int32Option(kgo.FetchMaxBytes),
		"max.partition.fetch.bytes": int32Option(kgo.FetchMaxPartitionBytes),
		"buffer.memory":             intOption(kgo.MaxBufferedBytes),
		"session.timeout.ms":        durationOption(kgo.SessionTimeout),
		"heartbeat.interval.ms":     durationOption(kgo.HeartbeatInterval),
		"max.poll.interval.ms":      durationOption(kgo.RebalanceTimeout),
		"auto.commit.interval.ms":   durationOption(kgo.AutoCommitInterval),
		"group.instance.id":         func(v string, _ map[string]string) ([]kgo.Opt, error) { return []kgo.Opt{kgo.InstanceID(v)}, nil },
		"acks":                      acksOption,
		"compression.type":          compressionOption,
		"isolation.level":           isolationOption,
		"client.rack":               func(v string, _ map[string]string) ([]kgo.Opt, error) { return []kgo.Opt{kgo.Rack(v)}, nil },
	}
}

// clientOptions translates Kafka's client properties; ignored are the names without effect, sorted.
func clientOptions(props map[string]string) (opts []kgo.Opt, ignored []string, err error) {
	table := clientPropertyTable()
	for _, name := range slices.Sorted(maps.Keys(props)) {
		option, ok := table[name]
		if !ok {
			ignored = append(ignored, name)
			continue
		}
		o, err := option(strings.TrimSpace(props[name]), props)
		if err != nil {
			return nil, nil, fmt.Errorf("client property %s=%s: %w", name, props[name], err)
		}
		opts = append(opts, o...)
	}
	return opts, ignored, nil
}

func durationOption[O kgo.Opt](opt func(time.Duration) O) propertyOption {
	return func(v string, _ map[string]string) ([]kgo.Opt, error) {
		ms, err := strconv.ParseInt(v, 10, 32)
		if err != nil || ms < 0 {
			return nil, fmt.Errorf("want milliseconds")
		}
		return []kgo.Opt{opt(time.Duration(ms) * time.Millisecond)}, nil
	}
}

func intOption[O kgo.Opt](opt func(int) O) propertyOption {
	return func(v string, _ map[string]string) ([]kgo.Opt, error) {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("want a number between 0 and 2147483647")
		}
		return []kgo.Opt{opt(int(n))}, nil
	}
}

func int32Option[O kgo.Opt](opt func(int32) O) propertyOption {
	return intOption(func(n int) O { return opt(int32(n)) })
}

func securityOption(v string, _ map[string]string) ([]kgo.Opt, error) {
	if strings.EqualFold(v, "PLAINTEXT") {
		return nil, nil
	}
	return nil, fmt.Errorf("only PLAINTEXT is supported")
}

// acksOption also decides on idempotence, which Kafka allows with acks=all alone.
func acksOption(v string, all map[string]string) ([]kgo.Opt, error) {
	opts, err := acksOptions(v)
	if err == nil && len(opts) > 1 && strings.EqualFold(all["enable.idempotence"], "true") {
		return nil, fmt.Errorf("enable.idempotence=true needs acks=all: set acks to all, or enable.idempotence to false")
	}
	return opts, err
}

// acksOptions are the client options for 0, 1, -1 or all; for other than all idempotence is off.
func acksOptions(v string) ([]kgo.Opt, error) {
	switch v {
	case "all", "-1":
		return []kgo.Opt{kgo.RequiredAcks(kgo.AllISRAcks())}, nil
	case "1":
		return []kgo.Opt{kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()}, nil
	case "0":
		return []kgo.Opt{kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite()}, nil
	default:
		return nil, fmt.Errorf("want 0, 1 or all")
	}
}

func compressionOption(v string, _ map[string]string) ([]kgo.Opt, error) {
	codec, err := parseCodec(v)
	if err != nil {
		return nil, err
	}
	return []kgo.Opt{kgo.ProducerBatchCompression(codec)}, nil
}

// parseCodec reads Kafka's name of a compression codec.
func parseCodec(v string) (kgo.CompressionCodec, error) {
	switch v {
	case "", "none", "uncompressed":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	default:
		return kgo.CompressionCodec{}, fmt.Errorf("want one of none, gzip, snappy, lz4, zstd")
	}
}

func isolationOption(v string, _ map[string]string) ([]kgo.Opt, error) {
	level, err := parseIsolation(v)
	if err != nil {
		return nil, err
	}
	return []kgo.Opt{kgo.FetchIsolationLevel(level)}, nil
}

func parseIsolation(v string) (kgo.IsolationLevel, error) {
	switch v {
	case "", "read_uncommitted":
		return kgo.ReadUncommitted(), nil
	case "read_committed":
		return kgo.ReadCommitted(), nil
	default:
		return kgo.IsolationLevel{}, fmt.Errorf("want read_uncommitted or read_committed")
	}
}

// metadataAgeOption has metadata renewed as often as asked for, which the library alone does no more often than every five seconds.
func metadataAgeOption(value string, props map[string]string) ([]kgo.Opt, error) {
	opts, err := durationOption(kgo.MetadataMaxAge)(value, props)
	if err != nil {
		return nil, err
	}
	least, err := durationOption(func(age time.Duration) kgo.Opt { return kgo.MetadataMinAge(min(age, 5*time.Second)) })(value, props)
	return append(opts, least...), err
}
