package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/integration/workload"
)

// TestKilledIdleNodeKnowsItsHighWatermark: what clients were told some time before a node was killed is what its store says.
func TestKilledIdleNodeKnowsItsHighWatermark(t *testing.T) {
	t.Parallel()
	c := single(t, nil)
	must(t, workload.CreateTopic(deadline(t, 30*time.Second), c.Bootstrap(), "idle", 1, 1, nil))
	var told string
	for try := 1; try <= 5; try++ { // a busy machine may need longer
		cl, err := kgo.NewClient(append(workload.ClientOptions(c.Bootstrap()), kgo.DefaultProduceTopic("idle"))...)
		must(t, err)
		must(t, cl.ProduceSync(deadline(t, 30*time.Second), kgo.StringRecord("x")).FirstErr())
		cl.Close()
		must(t, workload.Pause(t.Context(), time.Duration(try)*2500*time.Millisecond))
		must(t, c.Node(1).Kill())
		told = cairn(t, "", "dump", "--data-dir", c.Node(1).DataDir(), "--topic", "idle", "--partition", "0", "--raft")
		if strings.Contains(told, fmt.Sprintf("highWatermark: %d ", try)) {
			return
		}
		must(t, c.Node(1).Start())
		_, err = c.Node(1).WaitReady(deadline(t, 30*time.Second))
		must(t, err)
	}
	t.Errorf("the high watermark was 5, but the dump of the killed node says\n%s", told)
}
