package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// timeout bounds one order.
const timeout = 20 * time.Second

// order is what is to be done; ../../driver.go describes the fields.
type order struct {
	Do         string
	Topic      string
	Partition  int32
	Partitions int
	Codec      string
	Acks       string
	Idempotent bool
	ID         string
	Abort      bool
	Committed  bool
	Group      string
	Offset     int64
	Time       int64
	Count      int
	Name       string
	Value      string
	Records    []record
}

type record struct {
	Key     []byte   `json:"key"`
	Value   []byte   `json:"value"`
	Headers []header `json:"headers"`
	Offset  int64    `json:"offset"`
}

type header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

type reply struct {
	Error   string   `json:"error,omitempty"`
	Absent  string   `json:"absent,omitempty"`
	Offsets []int64  `json:"offsets,omitempty"`
	Offset  int64    `json:"offset"`
	Number  int      `json:"number"`
	Text    string   `json:"text"`
	Names   []string `json:"names"`
	Records []record `json:"records"`
}

// absent is an error that says what a client does not offer.
type absent string

func (a absent) Error() string { return string(a) }

// library is a client: an operation for each order, and a member of a group that ends with its context.
type library struct {
	operations map[string]func(context.Context, order) (reply, error)
	member     func(ctx context.Context, group, topic string) error
	// unhurried, if there is one, is a member with the client's own timeouts.
	unhurried func(ctx context.Context, group, topic string) error
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return errors.New("usage: compat LIBRARY serve BOOTSTRAP | compat LIBRARY member BOOTSTRAP GROUP TOPIC")
	}
	brokers := strings.Split(args[2], ",")
	var lib library
	switch args[0] {
	case "franz":
		lib = newFranz(brokers)
	case "sarama":
		lib = newSarama(brokers)
	case "segment":
		lib = newSegment(brokers)
	default:
		return fmt.Errorf("no library %q: franz, sarama or segment", args[0])
	}
	if args[1] == "member" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if len(args) > 5 {
			if lib.unhurried == nil {
				return fmt.Errorf("%s has no member for %q", args[0], args[5:])
			}
			return lib.unhurried(ctx, args[3], args[4])
		}
		return lib.member(ctx, args[3], args[4])
	}
	return lib.serve()
}

func (l library) serve() error {
	lines := bufio.NewReader(os.Stdin)
	for orders, replies := json.NewDecoder(lines), json.NewEncoder(os.Stdout); ; {
		var o order
		if err := orders.Decode(&o); err != nil {
			return nil // the runner has ended
		}
		if err := replies.Encode(l.carryOut(o)); err != nil {
			return err
		}
	}
}

func (l library) carryOut(o order) reply {
	do, ok := l.operations[o.Do]
	if !ok {
		return reply{Absent: fmt.Sprintf("it has no call for '%s'", o.Do)}
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	answer, err := do(ctx, o)
	var missing absent
	switch {
	case errors.As(err, &missing):
		return reply{Absent: missing.Error()}
	case err != nil:
		return reply{Error: err.Error()}
	}
	return answer
}

func nothing(context.Context, order) (reply, error) { return reply{}, nil }

// printer tells the runner what a member has and reads. It is safe for concurrent use.
type printer struct {
	mu     sync.Mutex
	topic  string
	before []int32 // guarded by mu
	told   bool    // guarded by mu
}

func (p *printer) has(partitions []int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	partitions = slices.Sorted(slices.Values(partitions))
	if p.told && slices.Equal(partitions, p.before) {
		return
	}
	p.before, p.told = partitions, true
	line := "has"
	for _, n := range partitions {
		line += fmt.Sprintf(" %s-%d", p.topic, n)
	}
	fmt.Println(line)
}

func (p *printer) read(partition int32, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Println("read", partition, offset)
}
