package main

import (
	"fmt"
	"math"
	"time"

	"github.com/urfave/cli/v2"

	"cairn/tools"
)

const produceHelp = `Reads standard input, or --file, and writes one record per line. Lines end at \n; everything else, \r included, is part of the record.

Reader properties (--reader-property NAME=VALUE): parse.key (false), key.separator (\t), parse.headers (false), headers.delimiter (\t),
headers.separator (,), headers.key.separator (:), ignore.error (false), null.marker (none). With both, a line is HEADERS, KEY, VALUE.

With acks=all the producer is idempotent: a record whose answer was lost is not written twice when it is sent again, and does not expire
while that is unknown. When a record does fail, all that is buffered for its partition fails with it. The exit code is 1 when any failed.

Examples:

   cairn produce --topic words --file words.txt --compression-codec zstd
   echo 'user-1:hello' | cairn produce --topic chat --reader-property parse.key=true --reader-property key.separator=:`

func produceCommand() *cli.Command {
	d := tools.DefaultProduceOptions()
	return &cli.Command{
		Name:        "produce",
		Usage:       "write lines as records",
		Description: produceHelp,
		Flags: append(append(connectionFlags("command-property", "producer-property"), jsonFlag()), append(unusedFlags("batch-size", "max-partition-memory-bytes",
			"max-block-ms", "metadata-expiry-ms", "retry-backoff-ms", "socket-buffer-size", "line-reader"),
			&cli.StringFlag{Name: "topic", Usage: "`NAME` of the topic"},
			&cli.IntFlag{Name: "partition", Usage: "write to partition `N` alone", Value: -1},
			&cli.StringFlag{Name: "file", Usage: "read `FILE` instead of standard input"},
			&cli.StringFlag{Name: "input", Usage: "`FORMAT`: lines, or json (objects as `cairn consume --json` prints them)", Value: "lines"},
			&cli.StringSliceFlag{Name: "reader-property", Aliases: []string{"property"}, Usage: "how lines are read, `NAME=VALUE`; may be repeated"},
			&cli.StringFlag{Name: "compression-codec", Usage: "`CODEC`: none, gzip, snappy, lz4 or zstd", Value: d.Codec},
			&cli.StringFlag{Name: "request-required-acks", Aliases: []string{"acks"}, Usage: "`ACKS`: 0, 1, or all (-1)", Value: d.Acks},
			&cli.BoolFlag{Name: "sync", Usage: "wait for each record before the next"},
			&cli.IntFlag{Name: "message-send-max-retries", Usage: "give a record up after `N` retries; -1: only the delivery timeout ends them", Value: d.Retries},
			&cli.IntFlag{Name: "timeout", Usage: "collect records of a batch for `MS` milliseconds (linger)", Value: int(d.Linger.Milliseconds())},
			&cli.IntFlag{Name: "request-timeout-ms", Usage: "`MS` for the answer to a request", Value: int(d.RequestTimeout.Milliseconds())},
			&cli.IntFlag{Name: "delivery-timeout-ms", Usage: "`MS` from reading a record to giving it up", Value: int(d.DeliveryTimeout.Milliseconds())},
			&cli.IntFlag{Name: "max-memory-bytes", Usage: "buffer at most `BYTES` of unanswered records", Value: d.MaxMemoryBytes},
			&cli.IntFlag{Name: "max-request-size", Usage: "batches of at most `BYTES`, and so the largest record", Value: int(d.MaxRequestBytes)},
		)...),
		Action: produce,
	}
}

func produce(c *cli.Context) error {
	if err := need(c, "topic"); err != nil {
		return err
	}
	tellUnused(c)
	o := tools.DefaultProduceOptions()
	o.Topic, o.File, o.Codec, o.Sync = c.String("topic"), c.String("file"), c.String("compression-codec"), c.Bool("sync")
	o.Acks, o.ReaderProperties = c.String("request-required-acks"), c.StringSlice("reader-property")
	switch input := c.String("input"); input {
	case "lines":
	case "json":
		o.JSONInput = true
	default:
		return usagef("--input %s: want lines or json", input)
	}
	retries, err := int32Flag(c, "message-send-max-retries", -1)
	if err != nil {
		return err
	}
	o.Retries = int(retries)
	if o.Partition, err = int32Flag(c, "partition", -1); err != nil {
		return err
	}
	if o.MaxRequestBytes, err = int32Flag(c, "max-request-size", 1024); err != nil {
		return err
	}
	memory, err := int32Flag(c, "max-memory-bytes", 1<<16)
	if err != nil {
		return err
	}
	o.MaxMemoryBytes = int(memory)
	for name, d := range map[string]*time.Duration{
		"timeout": &o.Linger, "request-timeout-ms": &o.RequestTimeout, "delivery-timeout-ms": &o.DeliveryTimeout,
	} {
		ms, err := int32Flag(c, name, 0)
		if err != nil {
			return err
		}
		*d = time.Duration(ms) * time.Millisecond
	}
	if o.DeliveryTimeout < o.Linger+o.RequestTimeout {
		return usagef("--delivery-timeout-ms (%d) must be at least --timeout plus --request-timeout-ms (%d)",
			o.DeliveryTimeout.Milliseconds(), (o.Linger + o.RequestTimeout).Milliseconds())
	}
	return tools.Produce(c.Context, connection(c, "command-property"), o, output(c))
}

// int32Flag reads a flag that must lie between lowest and the largest 32-bit number.
func int32Flag(c *cli.Context, name string, lowest int32) (int32, error) {
	n, err := numberFlag(c, name, int64(lowest), math.MaxInt32)
	return int32(n), err
}

// numberFlag reads a flag that must lie between two numbers, both of which are taken.
func numberFlag(c *cli.Context, name string, lowest, highest int64) (int64, error) {
	var n int64
	switch v := c.Value(name).(type) {
	case int:
		n = int64(v)
	case int64:
		n = v
	default:
		panic(fmt.Sprintf("BUG: --%s is a %T", name, v))
	}
	if n < lowest || n > highest {
		return 0, usagef("--%s %d: want a number from %d to %d", name, n, lowest, highest)
	}
	return n, nil
}
