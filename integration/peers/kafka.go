package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkaVersion is that of kafka/pom.xml.
const kafkaVersion = "4.3.1"

// kafkaHeap are the options of Kafka's own start script.
func kafkaHeap() []string {
	return []string{
		"-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
		"-XX:MaxInlineLevel=15", "-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
	}
}

// kafkaServers are one node that is broker and controller, or three brokers with a controller.
type kafkaServers struct{ fleet }

// kafkaClasses has Maven fetch Kafka's jars, once, and returns their class path.
var kafkaClasses = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs(filepath.Join(root, "integration", "peers", "kafka")) // Maven takes a relative file name as one in its own directory
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "target", "classpath")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	mvn := exec.Command("mvn", "-q", "-B", "dependency:build-classpath", "-Dmdep.outputFile="+file)
	mvn.Dir = dir
	if out, err := mvn.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetching Kafka's jars with Maven: %w\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	return strings.TrimSpace(string(text)), err
})

// openKafka writes the properties and formats the disks. What makes it safe, flush.messages, is a config of its topics.
func openKafka(dir string, count int, _ bool) (servers, error) {
	classes, err := kafkaClasses()
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(count + 1)
	if err != nil {
		return nil, err
	}
	s := &kafkaServers{fleet{home: dir}}
	add := func(id int, roles string) (*process, error) {
		home := filepath.Join(dir, fmt.Sprint("kafka-", id))
		if err := os.Mkdir(home, 0o700); err != nil {
			return nil, err
		}
		props := filepath.Join(home, "server.properties")
		if err := os.WriteFile(props, []byte(kafkaProperties(id, roles, home, count, ports)), 0o600); err != nil {
			return nil, err
		}
		java := func(class string, args ...string) []string {
			return append(append(append([]string{"java"}, kafkaHeap()...), "-cp", classes, class), args...)
		}
		words := java("kafka.tools.StorageTool", "format", "-t", "5L6g3nShT-eMCtK--X86sw", "-c", props)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("formatting %s: %w\n%s", home, err, out)
		}
		return &process{words: java("kafka.Kafka", props), log: filepath.Join(home, "log.txt")}, nil
	}
	roles := "broker,controller"
	if count > 1 {
		roles = "broker"
		controller, err := add(kafkaController, "controller")
		if err != nil {
			return nil, err
		}
		s.others = append(s.others, controller)
	}
	for i := range count {
		node, err := add(i, roles)
		if err != nil {
			return nil, err
		}
		s.nodes, s.at = append(s.nodes, node), append(s.at, local(ports[i]))
	}
	return s, nil
}

// kafkaController is the node id of a controller that is a node of its own.
const kafkaController = 100

// kafkaProperties are those without which a node does not start, and replication factors of internal topics that the nodes can meet. ports are those of
// the brokers, then that of the controller.
func kafkaProperties(id int, roles, home string, count int, ports []int) string {
	voter := 0
	if count > 1 {
		voter = kafkaController
	}
	controller := "CONTROLLER://" + local(ports[count])
	var listeners []string
	if strings.Contains(roles, "broker") {
		listeners = append(listeners, "PLAINTEXT://"+local(ports[id]))
	}
	if strings.Contains(roles, "controller") {
		listeners = append(listeners, controller)
	}
	return fmt.Sprintf(`process.roles=%s
node.id=%d
controller.quorum.voters=%d@%s
listeners=%s
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=%s
offsets.topic.replication.factor=%d
transaction.state.log.replication.factor=%d
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=%d
share.coordinator.state.topic.min.isr=1
`, roles, id, voter, local(ports[count]), strings.Join(listeners, ","), filepath.Join(home, "data"), count, count, count)
}

// wait asks each broker for metadata until it names all of them.
func (s *kafkaServers) wait(ctx context.Context) error {
	for _, at := range s.at {
		cl, err := kgo.NewClient(kgo.SeedBrokers(at))
		if err != nil {
			return err
		}
		err = until(ctx, func() error {
			req := kmsg.NewPtrMetadataRequest()
			req.Topics = []kmsg.MetadataRequestTopic{}
			asking, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			resp, err := cl.SeedBrokers()[0].Request(asking, req)
			if err != nil {
				return err
			}
			if n := len(resp.(*kmsg.MetadataResponse).Brokers); n != len(s.at) {
				return fmt.Errorf("%s knows %d of %d brokers", at, n, len(s.at))
			}
			return nil
		})
		cl.Close()
		if err != nil {
			return fmt.Errorf("Kafka at %s (the logs are below %s): %w", at, filepath.Dir(s.nodes[0].log), err)
		}
	}
	return nil
}

// until tries again every 5 ms; its error is that of the last try.
func until(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
