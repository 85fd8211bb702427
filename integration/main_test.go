package integration

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn/integration/harness"
	"cairn/integration/workload"
)

// built is the binary under test, shared by all tests of this process.
var built harness.Builder

// long reports whether the tests are to run at full length.
func long() bool { return os.Getenv("CAIRN_LONG") != "" }

// rounds is how often a test repeats its step: CAIRN_ROUNDS where it is set, else short or full.
func rounds(t *testing.T, short, full int) int {
	if s := os.Getenv("CAIRN_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("CAIRN_ROUNDS=%s: want a number of rounds", s)
		}
		return n
	}
	if long() {
		return full
	}
	return short
}

// cairnBinary skips the test unless integration tests are wanted, and returns the binary under test.
func cairnBinary(t *testing.T) string {
	t.Helper()
	if os.Getenv("CAIRN_INTEGRATION") == "" {
		t.Skip("starts real processes: run `make integration`")
	}
	path, err := built.Binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// seeded returns a random source whose seed is printed; CAIRN_SEED repeats a run.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("CAIRN_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("CAIRN_SEED=%s: %v", s, err)
		}
		seed = n
	}
	t.Logf("seed %d (repeat with CAIRN_SEED=%d)", seed, seed)
	return rand.New(rand.NewPCG(seed, seed))
}

// deadline is a context that ends after d or with the test.
func deadline(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// manage ends the cluster with the test, and keeps its data when the test failed.
func manage(t *testing.T, c *harness.Cluster, err error) *harness.Cluster {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.Keep()
			t.Logf("data and logs are kept in %s", c.Dir)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// single starts one node.
func single(t *testing.T, props map[string]string) *harness.Cluster {
	t.Helper()
	c, err := harness.Single(cairnBinary(t), props)
	manage(t, c, err)
	must(t, c.Start(deadline(t, 30*time.Second)))
	return c
}

// three starts three brokers and a controller.
func three(t *testing.T, props map[string]string) *harness.Cluster {
	t.Helper()
	c, err := harness.Three(cairnBinary(t), props)
	manage(t, c, err)
	must(t, c.Start(deadline(t, 60*time.Second)))
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// verify reads the whole topic and compares it with what was acknowledged.
func verify(t *testing.T, c *harness.Cluster, topic string, ledger *workload.Ledger) workload.Report {
	t.Helper()
	records, err := workload.Read(deadline(t, 2*time.Minute), c.Bootstrap(), topic)
	must(t, err)
	rep := ledger.Check(records)
	if err := rep.Err(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %s", topic, rep)
	return rep
}

// cairn runs a command of the binary under test and returns its standard output.
func cairn(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	ctx := deadline(t, 3*time.Minute)
	cmd := exec.CommandContext(ctx, cairnBinary(t), args...)
	cmd.Stdin = strings.NewReader(stdin)
	var errText strings.Builder
	cmd.Stderr = &errText
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("cairn %s: %v\n%s%s", strings.Join(args, " "), err, out, errText.String())
	}
	return string(out)
}

// textFile writes at least size bytes of real text, the sources of Go's standard library, and returns the path.
func textFile(t *testing.T, size int) string {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "text"))
	must(t, err)
	defer func() { must(t, out.Close()) }()
	written := 0
	root := filepath.Join(goRoot(t), "src")
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "testdata" {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(p, ".go") {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		// The clients end each record with a line end, so the file has to end with one too.
		if len(text) == 0 || text[len(text)-1] != '\n' {
			return nil
		}
		n, err := out.Write(text)
		if written += n; err == nil && written >= size {
			return fs.SkipAll
		}
		return err
	})
	must(t, err)
	if written < size {
		t.Fatalf("%s has only %d bytes of text", root, written)
	}
	return out.Name()
}

func goRoot(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	must(t, err)
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux")
	}
	return strings.TrimSpace(string(out))
}

// kcat runs kcat, which must be installed, and returns its standard output.
func kcat(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(deadline(t, 2*time.Minute), "kcat", args...)
	var errText strings.Builder
	cmd.Stderr = &errText
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kcat %s: %v (apt-get install kcat, or .ci/setup, installs it)\n%s", strings.Join(args, " "), err, errText.String())
	}
	return out
}

func codecs() []string { return []string{"none", "gzip", "snappy", "lz4", "zstd"} }

// topicFor is a topic name that tells client and codec apart.
func topicFor(parts ...any) string {
	var s []string
	for _, p := range parts {
		s = append(s, fmt.Sprint(p))
	}
	return strings.Join(s, "-")
}
