package broker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"cairn/broker/group"
	"cairn/broker/topicconfig"
	"cairn/engine"
	"cairn/internal/ids"
	"cairn/internal/properties"
	"cairn/raftgroup"

	"go.uber.org/zap"
)

// defaultRequestMemory is what queued.max.request.bytes=-1 means here, in bytes. Kafka has no bound then.
const defaultRequestMemory = 64 << 20

// neverIdle is what a negative connections.max.idle.ms means: idle connections stay open.
const neverIdle = 10 * 365 * 24 * time.Hour

// Config is the configuration of one process, as its properties give it. Names and units in the comments are those of
// the properties; propertyTable has their defaults and documentation. Make one with LoadConfig or NewConfig.
type Config struct {
	NodeID         ids.NodeID // node.id
	BrokerRole     bool       // process.roles
	ControllerRole bool
	Rack           *string // broker.rack
	DataDir        string  // log.dirs
	Flush          engine.FlushMode

	// Listeners are the addresses to bind: all of listeners, those of controller.listener.names marked.
	Listeners []ListenerConfig
	// Advertised are the addresses of the broker listeners as others reach them. Port 0: the bound one.
	Advertised []ListenerConfig
	// InterBroker is the name of the listener for other brokers.
	InterBroker string
	// Voters are the controllers' addresses by node id. Empty address: this node alone, reached in-process.
	Voters map[ids.NodeID]string

	MaxRequestBytes    int32 // socket.request.max.bytes
	RequestMemoryBytes int64 // queued.max.request.bytes
	SendBufferBytes    int   // socket.send.buffer.bytes, -1: the system's
	ReceiveBufferBytes int   // socket.receive.buffer.bytes, -1: the system's
	MaxIdle            time.Duration
	FetchMaxBytes      int32
	FetchSessionSlots  int
	MaxPagePartitions  int // max.request.partition.size.limit

	AutoCreateTopics         bool
	DeleteTopics             bool
	NumPartitions            int32
	DefaultReplicationFactor int16

	HeartbeatInterval   time.Duration
	SessionTimeout      time.Duration
	RegistrationTimeout time.Duration
	ConnectionGrace     time.Duration
	PeerTimeout         time.Duration
	RequestTimeout      time.Duration
	ControlledShutdown  bool

	// Groups is how consumer groups behave; what it needs of the broker is not set.
	Groups group.Config

	LagTimeMax     time.Duration // replica.lag.time.max.ms
	ProducerCheck  time.Duration // producer.id.expiration.check.interval.ms
	RetentionCheck time.Duration // log.retention.check.interval.ms
	Cleaner        bool          // log.cleaner.enable

	TxnMaxTimeout     time.Duration // transaction.max.timeout.ms
	TxnExpiration     time.Duration // transactional.id.expiration.ms
	TxnAbortInterval  time.Duration // transaction.abort.timed.out.transaction.cleanup.interval.ms
	TxnExpireInterval time.Duration // transaction.remove.expired.transaction.cleanup.interval.ms

	// RebalanceInterval is how often the controller restores preferred leaders; 0: never.
	RebalanceInterval time.Duration
	// QuarantineBytes and QuarantineAge limit what is kept in quarantine; negative: nothing does.
	QuarantineBytes int64
	QuarantineAge   time.Duration
	// MinFreeBytes and BallastBytes are for a disk that gets full, see engine.Config.
	MinFreeBytes, BallastBytes int64
	ScrubInterval              time.Duration // log.scrub.interval.ms; negative: never
	ScrubRate                  int64         // log.scrub.bytes.per.second

	MetricsListener string // host:port, "" for none
	Profiles        bool

	// faults, engineFaults and bootID, which names the run of the machine, are for tests.
	faults       raftgroup.Faults
	engineFaults engine.Faults
	bootID       string
	// values are the properties that were given, raw, by name.
	values map[string]string
}

// ListenerConfig is one entry of listeners or advertised.listeners. Host "" means all interfaces.
type ListenerConfig struct {
	Name       string
	Host       string
	Port       int32
	Controller bool
}

// LoadConfig reads a properties file ("" for none) and overrides of the form name=value, which win, and checks
// everything. The error joins all that is wrong.
func LoadConfig(file string, overrides []string) (*Config, error) {
	var list properties.List
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errConfig, err)
		}
		if list, err = properties.Parse(string(text)); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errConfig, file, err)
		}
	}
	var errs []error
	for _, o := range overrides {
		p, err := properties.ParseOverride(o)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", errConfig, err))
			continue
		}
		list = append(list, p)
	}
	errs = append(errs, checkProperties(file, list)...)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return NewConfig(list.Map())
}

// checkProperties checks names and values one by one.
func checkProperties(file string, list properties.List) []error {
	var errs []error
	for _, p := range list {
		if err := checkProperty(p.Name, p.Value); err != nil {
			where := p.Where()
			if p.Line > 0 {
				where = file + " " + where
			}
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
		}
	}
	return errs
}

func checkProperty(name, value string) error {
	if isPluginProperty(name) {
		return nil
	}
	p, ok := lookupProperty(name)
	if !ok {
		return errUnknownProperty(name)
	}
	return p.check(value)
}

// NewConfig makes a checked Config of properties by name. The map is owned by the Config from here on.
func NewConfig(values map[string]string) (*Config, error) {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		errs = append(errs, checkProperty(name, values[name]))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	v := valueReader{values: values}
	c := &Config{
		NodeID:             ids.NodeID(v.number("node.id")),
		DataDir:            cmp.Or(v.text("log.dirs"), v.text("log.dir")),
		MaxRequestBytes:    int32(v.number("socket.request.max.bytes")),
		RequestMemoryBytes: v.number("queued.max.request.bytes"),
		SendBufferBytes:    int(v.number("socket.send.buffer.bytes")),
		ReceiveBufferBytes: int(v.number("socket.receive.buffer.bytes")),
		MaxIdle:            v.millis("connections.max.idle.ms"),
		FetchMaxBytes:      int32(v.number("fetch.max.bytes")),
		FetchSessionSlots:  int(v.number("max.incremental.fetch.session.cache.slots")),
		MaxPagePartitions:  int(v.number("max.request.partition.size.limit")),

		AutoCreateTopics:         v.flag("auto.create.topics.enable"),
		DeleteTopics:             v.flag("delete.topic.enable"),
		NumPartitions:            int32(v.number("num.partitions")),
		DefaultReplicationFactor: int16(v.number("default.replication.factor")),

		HeartbeatInterval:   v.millis("broker.heartbeat.interval.ms"),
		SessionTimeout:      v.millis("broker.session.timeout.ms"),
		RegistrationTimeout: v.millis("initial.broker.registration.timeout.ms"),
		ConnectionGrace:     v.millis("controller.connection.grace.ms"),
		PeerTimeout:         v.millis("broker.peer.timeout.ms"),
		RequestTimeout:      v.millis("request.timeout.ms"),
		ControlledShutdown:  v.flag("controlled.shutdown.enable"),

		Groups: v.groups(),

		LagTimeMax: v.millis("replica.lag.time.max.ms"),

		RebalanceInterval: v.rebalanceInterval(),
		RetentionCheck:    v.millis("log.retention.check.interval.ms"),

		MetricsListener: v.text("metrics.listener"),
		Profiles:        v.flag("metrics.profiles.enable"),
		values:          values,
	}
	c.readUpkeep(v)
	c.readStore(v)
	if _, ok := values["log.dirs"]; !ok { // log.dir counts only where log.dirs is not given
		c.DataDir = v.text("log.dir")
	}
	if v.text("log.flush") == "os" {
		c.Flush = engine.FlushOS
	}
	if rack := v.text("broker.rack"); rack != "" {
		c.Rack = &rack
	}
	if c.MaxIdle < 0 {
		c.MaxIdle = neverIdle
	}
	if c.RequestMemoryBytes < 0 {
		c.RequestMemoryBytes = defaultRequestMemory
	}
	roles := topicconfig.SplitList(v.text("process.roles"))
	c.BrokerRole, c.ControllerRole = slices.Contains(roles, "broker"), slices.Contains(roles, "controller")
	if err := errors.Join(c.readListeners(v), c.readVoters(v), c.Validate()); err != nil {
		return nil, err
	}
	return c, nil
}

// valueReader reads values that were checked, so that they convert.
type valueReader struct{ values map[string]string }

func (v valueReader) text(name string) string {
	p, ok := lookupProperty(name)
	if !ok {
		panic("BUG: no property " + name)
	}
	if s, ok := v.values[name]; ok {
		return strings.TrimSpace(s)
	}
	return p.Default
}

func (v valueReader) number(name string) int64 {
	n, err := strconv.ParseInt(v.text(name), 10, 64)
	if err != nil {
		panic("BUG: property not checked: " + err.Error())
	}
	return n
}

func (v valueReader) millis(name string) time.Duration {
	const most = int64(time.Duration(1<<63-1) / time.Millisecond)
	return time.Duration(min(v.number(name), most)) * time.Millisecond
}

// rebalanceInterval is 0 where preferred leaders are not to be restored.
func (v valueReader) rebalanceInterval() time.Duration {
	if !v.flag("auto.leader.rebalance.enable") {
		return 0
	}
	const most = int64(time.Duration(1<<63-1) / time.Second)
	return time.Duration(min(v.number("leader.imbalance.check.interval.seconds"), most)) * time.Second
}

func (v valueReader) flag(name string) bool { return strings.EqualFold(v.text(name), "true") }

// given reports whether the property was set.
func (c *Config) given(name string) bool { _, ok := c.values[name]; return ok }

// warnWithoutEffect names the given properties that change nothing, one line for each reason.
func (c *Config) warnWithoutEffect(log *zap.Logger) {
	byReason := map[string][]string{}
	for name := range c.values {
		p, ok := lookupProperty(name)
		reason := "No effect: there are no plug-ins or listener-specific settings."
		if ok {
			effect, doc := p.effect()
			if effect != noEffect {
				continue
			}
			reason = doc
		}
		byReason[reason] = append(byReason[reason], name)
	}
	if !c.ControllerRole && c.given("min.insync.replicas") {
		const reason = "The minimum is the cluster's: it counts from the controllers' properties, or as a dynamic default of the cluster."
		byReason[reason] = append(byReason[reason], "min.insync.replicas")
	}
	for _, r := range slices.Sorted(maps.Keys(byReason)) {
		slices.Sort(byReason[r])
		log.Warn("properties without effect", zap.Strings("properties", byReason[r]), zap.String("reason", r))
	}
}

// topicLayer returns the given properties that set defaults of topic configs, and the rates of the replication throttle. Read-only.
func (c *Config) topicLayer() topicconfig.Layer {
	l := topicconfig.Layer{}
	for name, value := range c.values {
		if p, ok := lookupProperty(name); ok && (p.Effect == topicDefault || name == leaderRate || name == followerRate) {
			l[name] = value
		}
	}
	return l
}

func (c *Config) readUpkeep(v valueReader) {
	c.Cleaner = v.flag("log.cleaner.enable")
	c.ProducerCheck = v.millis("producer.id.expiration.check.interval.ms")
	c.TxnMaxTimeout = v.millis("transaction.max.timeout.ms")
	c.TxnExpiration = v.millis("transactional.id.expiration.ms")
	c.TxnAbortInterval = v.millis("transaction.abort.timed.out.transaction.cleanup.interval.ms")
	c.TxnExpireInterval = v.millis("transaction.remove.expired.transaction.cleanup.interval.ms")
}

// readStore reads what the store keeps, and how it deals with its disk.
func (c *Config) readStore(v valueReader) {
	c.QuarantineBytes = v.number("log.quarantine.bytes")
	c.QuarantineAge = v.millis("log.quarantine.ms")
	c.MinFreeBytes = v.number("log.min.free.bytes")
	c.BallastBytes = v.number("log.ballast.bytes")
	c.ScrubInterval = v.millis("log.scrub.interval.ms")
	c.ScrubRate = v.number("log.scrub.bytes.per.second")
}
