package integration

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn/integration/harness"
)

// flipBit flips one bit of one file of a stopped node, both at random, and returns which.
func flipBit(t *testing.T, rng *rand.Rand, node *harness.Node) (file string, bit int) {
	t.Helper()
	var files []string
	must(t, filepath.WalkDir(node.DataDir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() && info.Size() > 0 && d.Name() != "ballast" {
			files = append(files, path)
		}
		return nil
	}))
	file = files[rng.IntN(len(files))]
	b, err := os.ReadFile(file)
	must(t, err)
	bit = rng.IntN(8 * len(b))
	b[bit/8] ^= 1 << (bit % 8)
	must(t, os.WriteFile(file, b, 0o644))
	return file, bit
}

// logSize is how much a node has logged.
func logSize(t *testing.T, node *harness.Node) int64 {
	t.Helper()
	info, err := os.Stat(node.LogFile())
	must(t, err)
	return info.Size()
}

// inSync is how many replicas of the topic are in sync; -1 while the question gets no answer, as from a broker that starts.
func inSync(t *testing.T, at string) int {
	t.Helper()
	out, err := exec.CommandContext(deadline(t, time.Minute), cairnBinary(t), "topics", "describe", at, "--topic", "t", "--json").Output()
	if err != nil {
		return -1
	}
	var topics []struct {
		Partitions []struct{ ISR []int32 }
	}
	must(t, json.Unmarshal(out, &topics))
	return len(topics[0].Partitions[0].ISR)
}

// TestFlippedBitOfABroker: of three brokers one has a bit of a stored file flipped, again and again. It serves nothing wrong, no
// acknowledged record is lost, and it is repaired, or it ends with a message that names a file.
func TestFlippedBitOfABroker(t *testing.T) {
	t.Parallel()
	props := quick()
	props["log.scrub.interval.ms"], props["log.scrub.bytes.per.second"] = "300", "1000000000"
	c := three(t, props)
	rng := seeded(t)
	at := "--bootstrap-server=" + strings.Join(c.Bootstrap()[1:], ",") // the others answer all the time
	cairn(t, "", "topics", "create", at, "--topic", "t", "--replica-assignment", "1:2:3")
	records, tally := 0, map[string]int{}
	produce := func(n int) {
		cairn(t, numbered(records, records+n), "produce", at, "--topic", "t", "--sync")
		records += n
	}
	produce(60)
	for round := range rounds(t, 3, 200) {
		node := c.Node(1)
		if rng.IntN(2) == 0 {
			must(t, node.Kill())
		} else {
			must(t, node.Stop(20*time.Second))
		}
		file, bit := flipBit(t, rng, node)
		before := logSize(t, node)
		must(t, node.Start())
		whole := func() bool { return inSync(t, at) == 3 }
		until(t, fmt.Sprintf("round %d: bit %d of %s: in sync or ended", round, bit, file), func() bool { return !node.Running() || whole() })
		// A leader serves what it has. It may end at any time, so what becomes of the election is not asked.
		_ = exec.CommandContext(deadline(t, time.Minute), cairnBinary(t), "elect", at, "--election-type", "preferred", "--topic", "t", "--partition", "0").Run()
		if got := consumed(t, at, "t", records); got != numbered(0, records) {
			t.Fatalf("round %d: bit %d of %s: %d bytes are read, %d were produced", round, bit, file, len(got), len(numbered(0, records)))
		}
		until(t, fmt.Sprintf("round %d: bit %d of %s: in sync again or ended", round, bit, file), func() bool { return !node.Running() || whole() })
		outcome := "runs"
		if !node.Running() {
			outcome = "ended"
			text, err := os.ReadFile(node.LogFile())
			must(t, err)
			if said := string(text[before:]); !strings.Contains(said, node.DataDir()) && !strings.Contains(said, filepath.Base(file)) {
				t.Fatalf("round %d: bit %d of %s: it has ended without a file's name:\n%s", round, bit, file, said)
			}
			must(t, os.RemoveAll(node.DataDir()))
			must(t, node.Start())
			until(t, "the emptied broker is in sync", whole)
		}
		tally[strings.Trim(filepath.Base(file), "0123456789-.")+" "+outcome]++
		produce(10)
	}
	t.Log(tally)
}
