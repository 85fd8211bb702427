package tools

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// DefaultBootstrap is where `cairn start` without configuration listens.
const DefaultBootstrap = "127.0.0.1:9092"

// dialTimeout bounds the first connection to a bootstrap address.
const dialTimeout = 5 * time.Second

// adminTimeout bounds one administrative command, retries included (Kafka: default.api.timeout.ms).
const adminTimeout = 60 * time.Second

// adminAnswer is how long a broker has for an answer, beyond the time that the request itself grants, before an administrative
// command asks another one: one that is frozen must not hold up the command that is to deal with it.
const adminAnswer = 3 * time.Second

// ErrUnreachable is returned when no bootstrap address accepts a connection.
var ErrUnreachable = errors.New("no broker reached")

// Connection says how a command reaches its cluster.
type Connection struct {
	Bootstrap     string   // comma-separated host:port; empty: DefaultBootstrap
	CommandConfig string   // file of Kafka client properties, or empty
	Properties    []string // key=value client properties; they win over the file
	ClientID      string   // sent in each request; a client.id property wins
}

// addresses splits the bootstrap list; each must have a port.
func (c Connection) addresses() ([]string, error) {
	list := c.Bootstrap
	if list == "" {
		list = DefaultBootstrap
	}
	var addrs []string
	for _, a := range strings.Split(list, ",") {
		a = strings.TrimSpace(a)
		if a == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(a); err != nil {
			return nil, fmt.Errorf("bootstrap server %q: want HOST:PORT, for example %s", a, DefaultBootstrap)
		}
		addrs = append(addrs, a)
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("bootstrap server list %q is empty: want HOST:PORT[,HOST:PORT...]", list)
	}
	return addrs, nil
}

// open checks that a bootstrap address answers, so that a wrong one is reported at once instead of after the client's many retries, and
// returns a client with the properties applied in front of opts. The caller closes the client.
func (c Connection) open(ctx context.Context, out Output, opts ...kgo.Opt) (*kgo.Client, error) {
	addrs, props, err := c.Resolve()
	if err != nil {
		return nil, err
	}
	fromProps, ignored, err := clientOptions(props)
	if err != nil {
		return nil, UsageError{err}
	}
	for _, name := range ignored {
		out.warn("client property %s has no effect here", name)
	}
	var all []kgo.Opt
	if c.ClientID != "" {
		all = append(all, kgo.ClientID(c.ClientID))
	}
	all = append(all, opts...)
	return Open(ctx, addrs, append(all, fromProps...)...)
}

// Explain adds to an error of a command that speaks to a cluster what to look at in one of cairn, where the client library only guesses at the
// cause or gives none.
func Explain(err error) error {
	var closed *kgo.ErrFirstReadEOF
	switch {
	case errors.As(err, &closed):
		return fmt.Errorf("%w (cairn has neither TLS nor SASL; the listener of a controller closes such connections too)", err)
	case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrUnreachable):
		return fmt.Errorf("%w; is that the listener of a broker, and does the broker reach a controller (its log and /readyz tell)?", err)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted; what was asked may have happened or not: %w", err)
	default:
		return err
	}
}

// Resolve reads what Open needs: the addresses to ask first, and the client properties, those of the file under the single ones.
func (c Connection) Resolve() (addrs []string, props map[string]string, err error) {
	if props, err = c.properties(); err != nil {
		return nil, nil, UsageError{err}
	}
	if list := props["bootstrap.servers"]; list != "" && c.Bootstrap == "" {
		c.Bootstrap = list
	}
	if addrs, err = c.addresses(); err != nil {
		return nil, nil, UsageError{err}
	}
	return addrs, props, nil
}

// Open checks that one of addrs answers and returns a client with opts alone; see Resolve. The caller closes it.
func Open(ctx context.Context, addrs []string, opts ...kgo.Opt) (*kgo.Client, error) {
	if err := reach(ctx, addrs); err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addrs...), kgo.DialTimeout(dialTimeout)}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("client configuration: %w", err)
	}
	return cl, nil
}

// openAdmin is open for administrative commands.
func (c Connection) openAdmin(ctx context.Context, out Output) (*kgo.Client, error) {
	return c.open(ctx, out, kgo.RequestTimeoutOverhead(adminAnswer))
}

// withAdmin runs a command on the brokers, for at most adminTimeout.
func withAdmin(ctx context.Context, conn Connection, out Output, run func(context.Context, *kgo.Client) error) error {
	return withAdminFor(ctx, conn, out, adminTimeout, run)
}

// withAdminFor runs a command on the brokers for at most the given time.
func withAdminFor(ctx context.Context, conn Connection, out Output, limit time.Duration, run func(context.Context, *kgo.Client) error) error {
	cl, err := conn.openAdmin(ctx, out)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return run(ctx, cl)
}

// reach returns nil as soon as one address accepts a connection.
func reach(ctx context.Context, addrs []string) error {
	d := net.Dialer{Timeout: dialTimeout}
	var errs []error
	for _, a := range addrs {
		c, err := d.DialContext(ctx, "tcp", a)
		if err == nil {
			return c.Close()
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("%w at %s: %w; is a broker running there? `cairn start` starts one, --bootstrap-server names another",
		ErrUnreachable, strings.Join(addrs, ","), errors.Join(errs...))
}
