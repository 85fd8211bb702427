package topicconfig

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Settings are the effective topic configs that cairn's code asks for, parsed. Names and units are Kafka's.
type Settings struct {
	CompactPolicy, DeletePolicy bool
	// CompressionType is "producer" or the name of a codec ("uncompressed" for none).
	CompressionType                      string
	GzipLevel, LZ4Level, ZstdLevel       int
	MaxMessageBytes                      int
	LogAppendTime                        bool // else the records' own timestamps are kept (CreateTime)
	TimestampBeforeMaxMs                 int64
	TimestampAfterMaxMs                  int64
	MinInsyncReplicas                    int
	RetentionBytes, RetentionMs          int64 // negative: no limit
	SegmentBytes                         int
	SegmentMs                            int64
	DeleteRetentionMs                    int64
	MinCompactionLagMs                   int64
	MaxCompactionLagMs                   int64
	MinCleanableDirtyRatio               float64
	UncleanLeaderElection, RemoteStorage bool
}

// Parse returns the effective settings. Bad values do not get past the controller and the broker's start; should one be
// there all the same, it counts as not set, and the error, which wraps ErrInvalid, names every such value.
func Parse(l Layers) (Settings, error) {
	p := parser{layers: l}
	policies := SplitList(p.text("cleanup.policy"))
	s := Settings{
		CompactPolicy:          slices.Contains(policies, "compact"),
		DeletePolicy:           slices.Contains(policies, "delete"),
		CompressionType:        p.text("compression.type"),
		GzipLevel:              int(p.long("compression.gzip.level")),
		LZ4Level:               int(p.long("compression.lz4.level")),
		ZstdLevel:              int(p.long("compression.zstd.level")),
		MaxMessageBytes:        int(p.long("max.message.bytes")),
		LogAppendTime:          p.text("message.timestamp.type") == "LogAppendTime",
		TimestampBeforeMaxMs:   p.long("message.timestamp.before.max.ms"),
		TimestampAfterMaxMs:    p.long("message.timestamp.after.max.ms"),
		MinInsyncReplicas:      int(p.long("min.insync.replicas")),
		RetentionBytes:         p.long("retention.bytes"),
		RetentionMs:            p.long("retention.ms"),
		SegmentBytes:           int(p.long("segment.bytes")),
		SegmentMs:              p.long("segment.ms"),
		DeleteRetentionMs:      p.long("delete.retention.ms"),
		MinCompactionLagMs:     p.long("min.compaction.lag.ms"),
		MaxCompactionLagMs:     p.long("max.compaction.lag.ms"),
		MinCleanableDirtyRatio: p.double("min.cleanable.dirty.ratio"),
		UncleanLeaderElection:  p.bool("unclean.leader.election.enable"),
		RemoteStorage:          p.bool("remote.storage.enable"),
	}
	return s, errors.Join(p.errs...)
}

// MustSettings is Parse for a topic's configs that were validated one by one.
func MustSettings(topic Layer) Settings {
	s, err := Parse(Layers{Topic: topic})
	if err != nil {
		panic(fmt.Sprintf("BUG: topic configs not validated: %v", err))
	}
	return s
}

// parser reads values that its own text has checked, so the conversions cannot fail.
type parser struct {
	layers Layers
	errs   []error
}

func (p *parser) text(name string) string {
	e, ok := ResolveOne(name, p.layers)
	if !ok {
		panic("BUG: no topic config " + name)
	}
	if err := e.Def.Validate(e.Value); err != nil {
		p.errs = append(p.errs, err)
		return e.Def.Default
	}
	return strings.TrimSpace(e.Value)
}

func (p *parser) long(name string) int64 {
	n, err := strconv.ParseInt(p.text(name), 10, 64)
	if err != nil {
		panic("BUG: " + name + ": " + err.Error())
	}
	return n
}

func (p *parser) double(name string) float64 {
	f, err := strconv.ParseFloat(p.text(name), 64)
	if err != nil {
		panic("BUG: " + name + ": " + err.Error())
	}
	return f
}

func (p *parser) bool(name string) bool { return strings.EqualFold(p.text(name), "true") }
