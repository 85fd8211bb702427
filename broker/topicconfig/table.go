package topicconfig

import (
	"math"
	"slices"
	"strings"
)

// Why a config has no effect.
const (
	noSegments = "the log is one ordered store: it has no segments, segment files or index files"
	noRolling  = "the log has no segments: retention deletes to the batch"
	noFlush    = "log.flush decides for the whole broker when data is durable"
	noTiering  = "there is no tiered storage"
)

const (
	maxInt   = math.MaxInt32
	maxLong  = math.MaxInt64
	longMax  = "9223372036854775807"
	minutely = 60_000
	hourly   = 60 * minutely
)

// table is the complete table, ordered by name; it is never changed. Source of names, defaults and limits: Kafka 4.3,
// LogConfig.java and ServerTopicConfigSynonyms.java.
var table = []Def{
	{Name: "cleanup.policy", Type: List, Default: "delete", check: subsetOf("compact", "delete"), Synonyms: same("log.cleanup.policy")},
	{Name: "compression.gzip.level", Type: Int, Default: "-1", check: gzipLevel, Synonyms: same("compression.gzip.level")},
	{Name: "compression.lz4.level", Type: Int, Default: "9", check: intIn(1, 17), Synonyms: same("compression.lz4.level")},
	{
		Name: "compression.type", Type: String, Default: "producer", Synonyms: same("compression.type"),
		check: oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
	},
	{Name: "compression.zstd.level", Type: Int, Default: "3", check: intIn(-131072, 22), Synonyms: same("compression.zstd.level")},
	{
		Name: "delete.retention.ms", Type: Long, Default: "86400000", check: intIn(0, maxLong),
		Synonyms: same("log.cleaner.delete.retention.ms"),
	},
	{
		Name: "file.delete.delay.ms", Type: Long, Default: "60000", check: intIn(0, maxLong), NoEffect: noSegments,
		Synonyms: same("log.segment.delete.delay.ms"),
	},
	{
		Name: "flush.messages", Type: Long, Default: longMax, check: intIn(1, maxLong), NoEffect: noFlush,
		Synonyms: same("log.flush.interval.messages"),
	},
	{
		Name: "flush.ms", Type: Long, Default: longMax, check: intIn(0, maxLong), NoEffect: noFlush,
		Synonyms: same("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
	},
	{Name: "follower.replication.throttled.replicas", Type: List, check: throttledReplicas},
	{
		Name: "index.interval.bytes", Type: Int, Default: "4096", check: intIn(0, maxInt), NoEffect: noSegments,
		Synonyms: same("log.index.interval.bytes"),
	},
	{Name: "internal.segment.bytes", Type: Int, check: intIn(1, maxInt), NoEffect: noSegments, Hidden: true},
	{Name: "leader.replication.throttled.replicas", Type: List, check: throttledReplicas},
	{
		Name: "local.retention.bytes", Type: Long, Default: "-2", check: intIn(-2, maxLong), NoEffect: noTiering,
		Synonyms: same("log.local.retention.bytes"),
	},
	{
		Name: "local.retention.ms", Type: Long, Default: "-2", check: intIn(-2, maxLong), NoEffect: noTiering,
		Synonyms: same("log.local.retention.ms"),
	},
	{
		Name: "max.compaction.lag.ms", Type: Long, Default: longMax, check: intIn(1, maxLong),
		Synonyms: same("log.cleaner.max.compaction.lag.ms"),
	},
	{Name: "max.message.bytes", Type: Int, Default: "1048588", check: intIn(0, maxInt), Synonyms: same("message.max.bytes")},
	{
		Name: "message.timestamp.after.max.ms", Type: Long, Default: "3600000", check: intIn(0, maxLong),
		Synonyms: same("log.message.timestamp.after.max.ms"),
	},
	{
		Name: "message.timestamp.before.max.ms", Type: Long, Default: longMax, check: intIn(0, maxLong),
		Synonyms: same("log.message.timestamp.before.max.ms"),
	},
	{
		Name: "message.timestamp.type", Type: String, Default: "CreateTime", check: oneOf("CreateTime", "LogAppendTime"),
		Synonyms: same("log.message.timestamp.type"),
	},
	{
		Name: "min.cleanable.dirty.ratio", Type: Double, Default: "0.5", check: doubleIn(0, 1),
		Synonyms: same("log.cleaner.min.cleanable.ratio"),
	},
	{
		Name: "min.compaction.lag.ms", Type: Long, Default: "0", check: intIn(0, maxLong),
		Synonyms: same("log.cleaner.min.compaction.lag.ms"),
	},
	{Name: "min.insync.replicas", Type: Int, Default: "1", check: intIn(1, maxInt), Synonyms: same("min.insync.replicas")},
	{Name: "preallocate", Type: Bool, Default: "false", check: isBool, NoEffect: noSegments, Synonyms: same("log.preallocate")},
	{Name: "remote.log.copy.disable", Type: Bool, Default: "false", check: isBool, NoEffect: noTiering},
	{Name: "remote.log.delete.on.disable", Type: Bool, Default: "false", check: isBool, NoEffect: noTiering},
	{Name: "remote.storage.enable", Type: Bool, Default: "false", check: onlyFalse("tiered storage"), NoEffect: noTiering},
	{
		Name: "retention.bytes", Type: Long, Default: "-1", check: intIn(math.MinInt64, maxLong),
		Synonyms: same("log.retention.bytes"),
	},
	{
		Name: "retention.ms", Type: Long, Default: "604800000", check: intIn(-1, maxLong),
		Synonyms: []Synonym{{"log.retention.ms", 1}, {"log.retention.minutes", minutely}, {"log.retention.hours", hourly}},
	},
	{
		Name: "segment.bytes", Type: Int, Default: "1073741824", check: intIn(1<<20, maxInt), NoEffect: noRolling,
		Synonyms: same("log.segment.bytes"),
	},
	{
		Name: "segment.index.bytes", Type: Int, Default: "10485760", check: intIn(4, maxInt), NoEffect: noSegments,
		Synonyms: same("log.index.size.max.bytes"),
	},
	{
		Name: "segment.jitter.ms", Type: Long, Default: "0", check: intIn(0, maxLong), NoEffect: noRolling,
		Synonyms: []Synonym{{"log.roll.jitter.ms", 1}, {"log.roll.jitter.hours", hourly}},
	},
	{
		Name: "segment.ms", Type: Long, Default: "604800000", check: intIn(1, maxLong), NoEffect: noRolling,
		Synonyms: []Synonym{{"log.roll.ms", 1}, {"log.roll.hours", hourly}},
	},
	{
		Name: "unclean.leader.election.enable", Type: Bool, Default: "false", check: isBool,
		Synonyms: same("unclean.leader.election.enable"),
	},
}

// Defs returns the table, ordered by name. Read-only.
func Defs() []Def { return table }

// Lookup finds a config by its exact name.
func Lookup(name string) (Def, bool) {
	i, ok := slices.BinarySearchFunc(table, name, func(d Def, n string) int { return strings.Compare(d.Name, n) })
	if !ok {
		return Def{}, false
	}
	return table[i], true
}

// LookupServer finds the topic config whose default the broker property sets.
func LookupServer(property string) (Def, Synonym, bool) {
	for _, d := range table {
		for _, s := range d.Synonyms {
			if s.Name == property {
				return d, s, true
			}
		}
	}
	return Def{}, Synonym{}, false
}

func same(names ...string) []Synonym {
	s := make([]Synonym, len(names))
	for i, n := range names {
		s[i] = Synonym{n, 1}
	}
	return s
}

func gzipLevel(v string) error {
	if v == "-1" {
		return nil
	}
	return intIn(1, 9)(v)
}
