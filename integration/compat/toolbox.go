package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// The classes of Kafka's tools.
const (
	topicCommand    = "org.apache.kafka.tools.TopicCommand"
	electionCommand = "org.apache.kafka.tools.LeaderElectionCommand"
	offsetCommand   = "org.apache.kafka.tools.GetOffsetShell"
)

// answer is how one run of a tool ended.
type answer struct {
	code     int
	out, err string
}

func (a answer) String() string { return fmt.Sprintf("exit code %d\n%s%s", a.code, a.out, a.err) }

// toolbox runs Kafka's tools one after the other in one Java process, see java/src/main/java/cairn/Tools.java.
type toolbox struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader

	timeout time.Duration // of one tool
}

func openToolbox(ctx context.Context, classes string) (*toolbox, error) {
	cmd := exec.CommandContext(ctx, "java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes, "cairn.Tools")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &toolbox{cmd: cmd, in: in, out: bufio.NewReader(out), timeout: clientTimeout}, cmd.Start()
}

func (t *toolbox) close() error { return errors.Join(t.in.Close(), t.cmd.Wait()) }

// run runs one tool. The whole process is ended when it takes too long, so that every later run fails as well.
func (t *toolbox) run(ctx context.Context, stdin, class string, args ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = t.cmd.Process.Kill() })
	defer stop()
	request := []byte{byte(1 + len(args))}
	for _, word := range append([]string{class}, args...) {
		request = appendText(request, word)
	}
	if _, err := t.in.Write(appendText(request, stdin)); err != nil {
		return answer{}, fmt.Errorf("%s: %w", class, err)
	}
	var code int32
	if err := binary.Read(t.out, binary.BigEndian, &code); err != nil {
		return answer{}, fmt.Errorf("%s: %w", class, errors.Join(err, ctx.Err()))
	}
	out, err := readText(t.out)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", class, err)
	}
	errText, err := readText(t.out)
	return answer{int(code), out, errText}, err
}

func appendText(dst []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(text))), text...)
}

func readText(r io.Reader) (string, error) {
	var n int32
	if err := binary.Read(r, binary.BigEndian, &n); err != nil {
		return "", err
	}
	text := make([]byte, n)
	_, err := io.ReadFull(r, text)
	return string(text), err
}

// bench is a cluster with the tools that look at it: Kafka's and cairn's own.
type bench struct {
	*toolbox
	binary string
	at     string // the brokers to ask
}

// kafka runs one of Kafka's tools; a problem of the process is the answer's.
func (b *bench) kafka(ctx context.Context, class string, args ...string) answer {
	return b.kafkaWith(ctx, "", class, args...)
}

func (b *bench) kafkaWith(ctx context.Context, stdin, class string, args ...string) answer {
	a, err := b.run(ctx, stdin, class, append([]string{"--bootstrap-server", b.at}, args...)...)
	if err != nil {
		return answer{code: -1, err: err.Error()}
	}
	return a
}

// cairn runs a command of the binary.
func (b *bench) cairn(ctx context.Context, command string, args ...string) answer {
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	words := append(strings.Fields(command), "--bootstrap-server", b.at)
	cmd := exec.CommandContext(ctx, b.binary, append(words, args...)...)
	var out, errText strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errText
	a := answer{}
	if err := cmd.Run(); err != nil {
		a.code = -1
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			a.code = exit.ExitCode()
		}
	}
	a.out, a.err = out.String(), errText.String()
	return a
}

// wants reports what is not as it must be.
func (a answer) wants(code int, parts ...string) error {
	if a.code != code {
		return fmt.Errorf("exit code %d, not %d: %s", a.code, code, a)
	}
	for _, p := range parts {
		if !strings.Contains(a.out+a.err, p) {
			return fmt.Errorf("%q is not in %s", p, a)
		}
	}
	return nil
}

// same compares the lines of Kafka's tool with those of cairn's own; replace are pairs of what differs on purpose.
func same(kafka, cairn answer, replace ...string) error {
	want := strings.NewReplacer(replace...).Replace(kafka.out)
	if kafka.code != cairn.code || want != cairn.out {
		return fmt.Errorf("cairn: %s\nbut Kafka's tool: %s", cairn, kafka)
	}
	return nil
}
