package broker

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// TestMachineRestartsAfterAnOrderlyStop: under log.flush=os a replica goes on as who it was when its broker was stopped in order,
// and starts anew when it was not.
func TestMachineRestartsAfterAnOrderlyStop(t *testing.T) {
	c := (&testCluster{props: []string{"log.flush=os"}, bootID: "first"}).run(t, 3)
	defer c.close(t)
	cl := c.client(t)
	if _, err := kadm.NewClient(cl).CreateTopic(testContext(t), 1, 3, nil, "t"); err != nil {
		t.Fatal(err)
	}
	mustProduce(t, cl, "t", 0, 5)
	cl.Close()
	c.await(t, "in sync", "t", whole)
	for _, orderly := range []bool{true, false} {
		before := c.partition("t")
		node := before.Replicas[1]
		c.stop(t, int(node))
		file := filepath.Join(c.dirs[node-1], cleanShutdownFile)
		if _, err := os.Stat(file); err != nil {
			t.Fatal(err)
		}
		if !orderly {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		c.bootID += "+"
		c.start(t, int(node))
		awaitReady(t, c.brokers[node-1])
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the file is there while the broker runs: %v", err)
		}
		c.await(t, "returned", "t", whole)
		after := c.partition("t")
		if kept := after.ReplicaIDs[1] == before.ReplicaIDs[1]; kept != orderly {
			t.Errorf("orderly %v, the replica kept its id: %v", orderly, kept)
		}
	}
}

func TestCleanShutdownFileThatCannotBeReadProvesNothing(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]int64{"broker.epoch=7\n": 7, "": noBrokerEpoch, "broker.epoch=x\n": noBrokerEpoch} {
		if err := os.WriteFile(filepath.Join(dir, cleanShutdownFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := takeCleanShutdown(dir); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
		if got, err := takeCleanShutdown(dir); err != nil || got != noBrokerEpoch {
			t.Errorf("a second time: %d, %v", got, err)
		}
	}
}
