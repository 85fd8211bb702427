package broker

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"cairn/broker/topicconfig"
	"cairn/engine"
	"cairn/internal/ids"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func mustLoad(t *testing.T, overrides ...string) *Config {
	t.Helper()
	c, err := LoadConfig("", overrides)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWithoutConfigurationOneNodeHasBothRoles(t *testing.T) {
	c := mustLoad(t)
	if !c.BrokerRole || !c.ControllerRole || c.NodeID != 1 || c.DataDir != "data" || c.Flush != engine.FlushAlways {
		t.Errorf("got %+v", c)
	}
	want := []ListenerConfig{{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 9092}}
	if !slices.Equal(c.Listeners, want) || !slices.Equal(c.Advertised, want) || c.InterBroker != "PLAINTEXT" {
		t.Errorf("listeners %v, advertised %v, inter-broker %s", c.Listeners, c.Advertised, c.InterBroker)
	}
	if !reflect.DeepEqual(c.Voters, map[ids.NodeID]string{1: ""}) {
		t.Errorf("voters %v", c.Voters)
	}
	if c.RequestMemoryBytes != defaultRequestMemory || c.MaxRequestBytes != 104857600 || c.MaxIdle != 10*time.Minute {
		t.Errorf("limits %d, %d, %v", c.RequestMemoryBytes, c.MaxRequestBytes, c.MaxIdle)
	}
}

func TestSeparateRolesAndListeners(t *testing.T) {
	b := mustLoad(t, "process.roles=broker", "node.id=3", "controller.quorum.voters=9@c:9093", "controller.listener.names=CONTROLLER",
		"listeners=IN://10.0.0.3:9094,OUT://0.0.0.0:9092", "advertised.listeners=IN://10.0.0.3:9094,OUT://kafka.example:19092",
		"listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT", "inter.broker.listener.name=IN", "broker.rack=a", "log.flush=os")
	if b.ControllerRole || b.InterBroker != "IN" || *b.Rack != "a" || b.Flush != engine.FlushOS || b.Voters[9] != "c:9093" {
		t.Errorf("got %+v", b)
	}
	if b.Advertised[1] != (ListenerConfig{Name: "OUT", Host: "kafka.example", Port: 19092}) {
		t.Errorf("advertised %v", b.Advertised)
	}
	c := mustLoad(t, "process.roles=controller", "node.id=9", "controller.quorum.voters=9@c:9093", "controller.listener.names=CONTROLLER",
		"listeners=CONTROLLER://:9093")
	if c.BrokerRole || len(c.Listeners) != 1 || !c.Listeners[0].Controller || c.Advertised != nil {
		t.Errorf("got %+v", c)
	}
}

// stock is the example configuration of one combined node in Kafka's documentation.
const stock = `process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=/var/lib/kafka
num.partitions=1
offsets.topic.replication.factor=1
log.retention.hours=168
log.segment.bytes=1073741824
`

func TestStockFileLoadsAndNamesWhatHasNoEffectOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server.properties")
	if err := os.WriteFile(path, []byte(stock), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := LoadConfig(path, []string{"num.partitions=4"})
	if err != nil {
		t.Fatal(err)
	}
	if c.NumPartitions != 4 || c.SendBufferBytes != 102400 {
		t.Errorf("partitions %d, send buffer %d", c.NumPartitions, c.SendBufferBytes)
	}
	core, logs := observer.New(zapcore.WarnLevel)
	c.warnWithoutEffect(zap.New(core))
	named := map[string]int{}
	for _, e := range logs.All() {
		for _, name := range e.ContextMap()["properties"].([]any) {
			named[name.(string)]++
		}
	}
	for _, name := range []string{"num.network.threads", "num.io.threads", "log.segment.bytes"} {
		if named[name] != 1 {
			t.Errorf("%s named %d times", name, named[name])
		}
	}
	if named["num.partitions"] != 0 || named["listeners"] != 0 {
		t.Errorf("properties with effect are named: %v", named)
	}
}

func TestConfigErrors(t *testing.T) {
	for _, tc := range []struct{ name, override, want string }{
		{"unknown name", "log.dir.s=x", `did you mean "log.dirs"`},
		{"unlike any name", "zzzzzzzzzzzzzzzzzzzzzzzzzz=x", `unknown property`},
		{"no number", "num.partitions=x", "at most 32 bits"},
		{"below the limit", "num.partitions=0", "at least 1"},
		{"above the type", "num.partitions=3000000000", "at most 32 bits"},
		{"no bool", "auto.create.topics.enable=yes", "true or false"},
		{"no word", "log.flush=never", "always, os"},
		{"two data directories", "log.dirs=a,b", "exactly one"},
		{"other metadata directory", "metadata.log.dir=elsewhere", "must be the data directory"},
		{"encrypted listener", "listeners=SSL://h:9093", "SSL is not available"},
		{"authenticated by name", "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT", "SASL_PLAINTEXT is not available"},
		{"unmapped listener", "listeners=X://h:1", "not in listener.security.protocol.map"},
		{"listener without scheme", "listeners=h:9092", "NAME://host:port"},
		{"listener port", "listeners=PLAINTEXT://h:99999", "port between"},
		{"listener twice", "listeners=PLAINTEXT://h:1,PLAINTEXT://h:2", "twice"},
		{"advertised wildcard", "advertised.listeners=PLAINTEXT://0.0.0.0:9092", "that others can reach"},
		{"wildcard not advertised", "listeners=PLAINTEXT://0.0.0.0:9092", "needs advertised.listeners"},
		{"advertised stranger", "advertised.listeners=OTHER://h:9092", "no broker listener"},
		{"inter-broker stranger", "inter.broker.listener.name=OTHER", "no advertised listener"},
		{"role", "process.roles=zookeeper", "broker, controller"},
		{"broker alone without voters", "process.roles=broker", "needs controller.quorum.voters"},
		{"not a voter", "controller.quorum.voters=5@h:1", "must be in controller.quorum.voters"},
		{"bad voter", "controller.quorum.voters=h:1", "id@host:port"},
		{"several bootstrap servers", "controller.quorum.bootstrap.servers=a:1,b:1", "which has their ids"},
		{"broker.id", "broker.id=7", "contradicts node.id"},
		{"session shorter than heartbeat", "broker.session.timeout.ms=1000", "must be below"},
		{"authorizer", "authorizer.class.name=org.example.A", "no authorization"},
		{"policy", "create.topic.policy.class.name=org.example.P", "Not available"},
		{"tiering", "remote.log.storage.system.enable=true", "tiered"},
		{"topic default", "log.cleanup.policy=shred", "log.cleanup.policy"},
		{"topic default range", "min.insync.replicas=0", "min.insync.replicas"},
		{"per-address limit", "max.connections.per.ip.overrides=localhost", "address:number"},
		{"request memory", "queued.max.request.bytes=10", "at least"},
		{"metrics", "metrics.listener=9464", "host:port"},
		{"profiles alone", "metrics.profiles.enable=true", "needs metrics.listener"},
		{"override without value", "log.dirs", "want NAME=VALUE"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := LoadConfig("", []string{tc.override})
			if !errors.Is(err, errConfig) {
				t.Fatalf("got %v", err)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%q is not in %q", tc.want, err)
			}
		})
	}
}

func TestConfigErrorsAreJoinedAndPlaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server.properties")
	if err := os.WriteFile(path, []byte("# c\nnum.partitions=0\nnod.id=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := LoadConfig(path, []string{"log.flush=x"})
	for _, want := range []string{path + " line 2", path + " line 3", `"node.id"`, "--override log.flush"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if _, err := LoadConfig(filepath.Join(t.TempDir(), "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestPropertyTable(t *testing.T) {
	if !slices.IsSortedFunc(propertyTable, func(a, b property) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not ordered by name")
	}
	own := []string{"broker.peer.timeout.ms", "controller.connection.grace.ms", "log.ballast.bytes", "log.cleaner.generation.entries", "log.flush", "log.min.free.bytes", "log.quarantine.bytes", "log.quarantine.ms", "log.scrub.bytes.per.second", "log.scrub.interval.ms", "metrics.listener", "metrics.profiles.enable"}
	// Dynamic names that are not part of the definition of static ones.
	dynamicOnly := []string{"follower.replication.throttled.rate", "leader.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second"}
	if got := len(propertyTable) - len(own) - len(dynamicOnly); got != 360 {
		t.Errorf("%d properties of Kafka 4.3.1, want 360", got)
	}
	for i, p := range propertyTable {
		if i > 0 && propertyTable[i-1].Name == p.Name {
			t.Errorf("%s twice", p.Name)
		}
		if _, doc := p.effect(); doc == "" {
			t.Errorf("%s: no documentation", p.Name)
		}
		if p.Default != "" || p.Type == typeBool {
			if err := p.check(p.Default); err != nil {
				t.Errorf("%s: default: %v", p.Name, err)
			}
		}
		if _, _, isTopic := topicconfig.LookupServer(p.Name); isTopic != (p.Effect == topicDefault) {
			t.Errorf("%s: default of a topic config: %v", p.Name, isTopic)
		}
	}
	for _, d := range topicconfig.Defs() {
		for _, s := range d.Synonyms {
			if _, ok := lookupProperty(s.Name); !ok {
				t.Errorf("synonym %s of %s is no property", s.Name, d.Name)
			}
		}
	}
}

func TestEveryPropertyIsAcceptedWithItsDefault(t *testing.T) {
	values := map[string]string{}
	for _, p := range propertyTable {
		if p.Default != "" {
			values[p.Name] = p.Default
		}
	}
	if _, err := NewConfig(values); err != nil {
		t.Error(err)
	}
}

func TestPluginAndListenerPrefixesAreAccepted(t *testing.T) {
	mustLoad(t, "listener.name.internal.ssl.keystore.location=x", "rsm.config.a=b", "rlmm.config.a=b")
	if _, err := LoadConfig("", []string{"listener.name.=x"}); err == nil {
		t.Error("a bare prefix is accepted")
	}
}

func TestValidateDynamic(t *testing.T) {
	for name, value := range map[string]string{"max.connections": "5", "message.max.bytes": "100", "max.connections.per.ip.overrides": "10.0.0.1:5,[::1]:7", "num.io.threads": "4"} {
		if err := validateDynamic(name, value); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, value := range map[string]string{"node.id": "5", "max.connections": "x", "nonsense": "1", "max.connections.per.ip.overrides": "a"} {
		if err := validateDynamic(name, value); !errors.Is(err, errConfig) {
			t.Errorf("%s=%s: %v", name, value, err)
		}
	}
}
