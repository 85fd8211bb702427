package nodes

import (
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestFreezeWaitsUntilTheProcessStandsStill: the wait does not end before each thread has had the signal.
func TestFreezeWaitsUntilTheProcessStandsStill(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	}()
	n := &Node{ID: 1, proc: &process{cmd: cmd}}
	ended := make(chan error, 1)
	go func() { ended <- n.waitStopped() }()
	select {
	case err := <-ended:
		t.Fatalf("the process runs, and the wait for its standstill ended: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := n.Freeze(); err != nil { // again, as plans of chaos rounds do
		t.Error(err)
	}
	if still, err := n.StandsStill(); err != nil || !still {
		t.Errorf("frozen: %t, %v", still, err)
	}
	if err := n.Thaw(); err != nil {
		t.Fatal(err)
	}
	for still, err := n.StandsStill(); still || err != nil; still, err = n.StandsStill() {
		if err != nil || t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

func TestStateBehindAnyName(t *testing.T) {
	for line, want := range map[string]string{"17 (cairn) T 1 17": "T", "17 (a) R (b) S 1": "S", "": "?", "17": "17"} {
		if got := stateOf([]byte(line)); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
