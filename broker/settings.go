package broker

import (
	"maps"

	"cairn/broker/topicconfig"
	"cairn/wire/batch"
)

// topicSettings are the effective settings of a topic on this broker, parsed once for each change of its configs.
type topicSettings struct {
	topicconfig.Settings
	// rules are what Validate demands of the topic's batches; only NowMs is left to the request.
	rules batch.Rules

	layers topicconfig.Layers // what the settings were parsed from
}

// maxDecompressedFactor bounds what one compressed batch may hold when opened, as a multiple of max.message.bytes. It
// leaves room for well-compressed text, and keeps a small batch from taking the memory of many.
const maxDecompressedFactor = 100

// parseTopicSettings parses the layers. The error names values that count as not set; the settings are usable anyway.
func parseTopicSettings(layers topicconfig.Layers) (*topicSettings, error) {
	s, err := topicconfig.Parse(layers)
	codec, codecErr := batch.ParseCodec(s.CompressionType)
	if codecErr != nil {
		codec = batch.CodecProducer
	}
	t := &topicSettings{Settings: s, layers: layers, rules: batch.Rules{
		MaxMessageBytes:      s.MaxMessageBytes,
		Compacted:            s.CompactPolicy,
		BeforeMaxMs:          s.TimestampBeforeMaxMs,
		AfterMaxMs:           s.TimestampAfterMaxMs,
		TargetCodec:          codec,
		Levels:               batch.Levels{Gzip: max(s.GzipLevel, 0), LZ4: s.LZ4Level, Zstd: s.ZstdLevel},
		MaxDecompressedBytes: maxDecompressedFactor * max(s.MaxMessageBytes, batch.HeaderLen),
	}}
	if s.LogAppendTime {
		t.rules.TimestampType = batch.LogAppendTime
	}
	return t, err
}

// madeFrom reports whether the settings are those of these layers.
func (t *topicSettings) madeFrom(l topicconfig.Layers) bool {
	return maps.Equal(t.layers.Topic, l.Topic) && maps.Equal(t.layers.Broker, l.Broker) &&
		maps.Equal(t.layers.Cluster, l.Cluster) && maps.Equal(t.layers.Static, l.Static)
}
