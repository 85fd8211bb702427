package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// orderTimeout bounds one order to a client.
const orderTimeout = 45 * time.Second

// order is what a client is asked to do: one line of JSON on its standard input. clients/README.md lists the operations.
type order struct {
	Do         string     `json:"do"`
	Topic      string     `json:"topic,omitempty"`
	Partition  int32      `json:"partition"`
	Partitions int        `json:"partitions,omitempty"`
	Codec      string     `json:"codec,omitempty"`
	Acks       string     `json:"acks,omitempty"`
	Idempotent bool       `json:"idempotent,omitempty"`
	ID         string     `json:"id,omitempty"` // transactional
	Abort      bool       `json:"abort,omitempty"`
	Committed  bool       `json:"committed,omitempty"`
	Group      string     `json:"group,omitempty"`
	Offset     int64      `json:"offset"`
	Time       int64      `json:"time,omitempty"`
	Count      int        `json:"count,omitempty"`
	Name       string     `json:"name,omitempty"`
	Value      string     `json:"value,omitempty"`
	Records    []exchange `json:"records,omitempty"`
}

// exchange is a record as it goes between the runner and a client. Bytes are base 64, and null differs from empty.
type exchange struct {
	Key     []byte       `json:"key"`
	Value   []byte       `json:"value"`
	Headers []headerText `json:"headers"`
	Offset  int64        `json:"offset"`
}

type headerText struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// reply is a line of JSON on a client's standard output.
type reply struct {
	Error   string     `json:"error"`
	Absent  string     `json:"absent"` // what the client does not offer
	Offsets []int64    `json:"offsets"`
	Offset  int64      `json:"offset"`
	Number  int        `json:"number"`
	Text    string     `json:"text"`
	Names   []string   `json:"names"`
	Records []exchange `json:"records"`
}

// driver is a client as a process of its own that carries out one order after the other. It is started anew when it has died.
type driver struct {
	command []string
	at      string
	log     string // file of its standard error

	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
	err *os.File
}

func (d *driver) start(ctx context.Context) (err error) {
	if d.err, err = os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	words := append(append([]string(nil), d.command...), "serve", d.at)
	d.cmd = exec.CommandContext(ctx, words[0], words[1:]...)
	d.cmd.Stderr = d.err
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	d.out = json.NewDecoder(out)
	return d.cmd.Start()
}

// close ends the process and waits for it.
func (d *driver) close() {
	if d.cmd == nil || d.cmd.Process == nil {
		return
	}
	_ = d.in.Close()
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait() // killed
	_ = d.err.Close()
	d.cmd = nil
}

// do gives one order and waits for the reply.
func (d *driver) do(ctx context.Context, o order) (reply, error) {
	if d.cmd == nil {
		if err := d.start(ctx); err != nil {
			return reply{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = d.cmd.Process.Kill() })
	var answer reply
	err := json.NewEncoder(d.in).Encode(o)
	if err == nil {
		err = d.out.Decode(&answer)
	}
	stop()
	switch {
	case ctx.Err() != nil:
		d.close()
		return reply{}, fmt.Errorf("%s: no answer within %v", o.Do, orderTimeout)
	case err != nil:
		d.close()
		return reply{}, fmt.Errorf("%s: the client's process ended: %w (%s)", o.Do, err, lastLine(d.log))
	case answer.Absent != "":
		return reply{}, fmt.Errorf("%w by the client: %s", errNotOffered, answer.Absent)
	case answer.Error != "":
		return reply{}, fmt.Errorf("%s: %w", o.Do, errors.New(answer.Error))
	}
	return answer, nil
}
