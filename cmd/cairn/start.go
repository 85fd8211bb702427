package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"cairn/broker"
	"cairn/tools"
)

// shutdownTimeout bounds the orderly end of a node, the handing over of leadership included.
const shutdownTimeout = 60 * time.Second

const startHelp = `Without flags it is a cluster of one: broker and controller on 127.0.0.1:9092 with its data in ./data. A properties file has Kafka's
names; any that does not exist, and any contradiction, is an error. One line on standard output says when the node serves; the log goes to
standard error. SIGTERM and SIGINT hand leadership over, flush and end it with exit code 0.

Examples:

   cairn start
   cairn start --config server.properties --override node.id=2 --override log.flush=os`

func startCommand() *cli.Command {
	return &cli.Command{
		Name:        "start",
		Usage:       "run a node of a cluster: broker, controller, or both",
		Description: startHelp,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "config", Usage: "properties `FILE`, as Kafka's server.properties"},
			&cli.StringSliceFlag{Name: "override", Usage: "a property `NAME=VALUE`; may be repeated, wins over the file"},
			&cli.StringFlag{Name: "log-level", Usage: "`LEVEL`: debug, info, warn or error", Value: "info"},
			&cli.StringFlag{Name: "log-format", Usage: "`FORMAT`: console, or json for programs", Value: "console"},
		},
		Action: start,
	}
}

func start(c *cli.Context) (err error) {
	log, err := newLogger(c.String("log-level"), c.String("log-format"), c.App.ErrWriter)
	if err != nil {
		return err
	}
	cfg, err := broker.LoadConfig(c.String("config"), c.StringSlice("override"))
	if err != nil {
		return tools.UsageError{Err: err}
	}
	limitHeap()
	node, err := untilStopped(c.Context, func() (*broker.Node, error) { return broker.Start(c.Context, cfg, log) })
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("start: %w; does a broker run there already? --override listeners=PLAINTEXT://HOST:PORT (or metrics.listener) names another address", err)
	case err != nil:
		return fmt.Errorf("start: %w", err)
	}
	select {
	case <-node.Ready():
		_, err := fmt.Fprintf(c.App.Writer, "cairn: node %d is ready: %s, data in %s\n", cfg.NodeID, strings.Join(node.Addresses(), " "), cfg.DataDir)
		if err != nil { // whoever started it has gone, but clients may be there
			log.Warn("the ready line could not be written", zap.Error(err))
		}
		select {
		case <-c.Context.Done():
		case <-node.Done():
		}
	case <-c.Context.Done():
	case <-node.Done():
	}
	failure := node.Err()
	if failure == nil {
		log.Info("stopping")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context), shutdownTimeout)
	defer cancel()
	if err := node.Shutdown(ctx); err != nil && failure == nil {
		failure = fmt.Errorf("shutdown: %w", err)
	}
	return failure
}

// startGrace is how long a start may take to end by itself once the process is asked to end.
const startGrace = 10 * time.Second

// untilStopped returns what start returns, or an error when ctx ended startGrace ago and start has not: a store waits
// without end for room on a full disk, for instance. Whoever gets that error has to end the process, since start goes on.
func untilStopped(ctx context.Context, start func() (*broker.Node, error)) (*broker.Node, error) {
	type result struct {
		node *broker.Node
		err  error
	}
	done := make(chan result, 1)
	go func() {
		node, err := start()
		done <- result{node, err}
	}()
	select {
	case r := <-done:
		return r.node, r.err
	case <-ctx.Done():
	}
	grace := time.NewTimer(startGrace)
	defer grace.Stop()
	select {
	case r := <-done:
		return r.node, r.err
	case <-grace.C:
		return nil, fmt.Errorf("%w while the node was still opening its data", ctx.Err())
	}
}

// newLogger logs to w. Sampling is off: the broker itself limits what it says.
func newLogger(level, format string, w io.Writer) (*zap.Logger, error) {
	lvl, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, usagef("--log-level %s: want debug, info, warn or error", level)
	}
	enc := zap.NewProductionEncoderConfig()
	enc.EncodeTime = zapcore.ISO8601TimeEncoder
	enc.EncodeDuration = zapcore.StringDurationEncoder
	var encoder zapcore.Encoder
	switch format {
	case "console":
		enc.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(enc)
	case "json":
		encoder = zapcore.NewJSONEncoder(enc)
	default:
		return nil, usagef("--log-format %s: want console or json", format)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), lvl)), nil
}
