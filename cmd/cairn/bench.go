package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"cairn/tools/bench"
)

const benchProduceHelp = `Sends records as fast as it goes, or at --throughput, and prints the lines of Kafka's producer-perf-test. Latency counts from the call that
hands a record to the client; with --open-loop from the moment when the pace wanted it sent, so that a stall counts for all that it held up.

Kafka's producer properties come by --command-property NAME=VALUE or --command-config FILE, with Kafka's defaults and rules; --print-config
lists them. The client inside is franz-go: an idempotent batch whose request is unanswered does not expire, when one expires so does all that is
buffered for its partition, and with idempotence there are always five requests in flight.

At the end it says how many records were acknowledged, how many failed (by the error of the last answer), and of how many nobody knows. The exit code is
1 unless all were acknowledged.

Examples:

   cairn bench produce --topic load --num-records 1000000 --record-size 1024
   cairn bench produce --topic load --num-records 600000 --record-size 100 --throughput 10000 --open-loop --plot load.svg
   cairn bench produce --topic load --num-records 1000 --record-size 100 --sync --command-property delivery.timeout.ms=5000 \
      --command-property request.timeout.ms=2000`

func benchCommand() *cli.Command {
	return &cli.Command{
		Name: "bench", Usage: "generate load and measure",
		Description: "Examples:\n\n   cairn bench produce --topic load --num-records 1000000 --record-size 1024\n   cairn bench consume --topic load --num-records 1000000",
		Subcommands: []*cli.Command{benchProduceCommand(), benchConsumeCommand(), benchEndToEndCommand()},
	}
}

func benchProduceCommand() *cli.Command {
	d := bench.DefaultProduceOptions()
	return &cli.Command{
		Name: "produce", Usage: "send records; Kafka's producer-perf-test", Description: benchProduceHelp,
		Flags: append(connectionFlags("command-property", "producer-props"), jsonFlag(),
			&cli.StringFlag{Name: "topic", Usage: "`NAME` of the topic"},
			&cli.Int64Flag{Name: "num-records", Usage: "send `N` records, over all producers"},
			&cli.IntFlag{Name: "record-size", Usage: "values of `BYTES` random letters"},
			&cli.StringFlag{Name: "payload-file", Usage: "values are random parts of `FILE`"},
			&cli.StringFlag{Name: "payload-delimiter", Usage: "what parts the file, `TEXT` with \\n and \\t", Value: d.PayloadDelimiter},
			&cli.BoolFlag{Name: "payload-monotonic", Usage: "values are the numbers of the records"},
			&cli.Float64Flag{Name: "throughput", Usage: "send `N` records per second; -1: as fast as it goes", Value: d.Throughput},
			&cli.IntFlag{Name: "producers", Usage: "`N` clients in this process", Value: d.Producers},
			&cli.BoolFlag{Name: "open-loop", Usage: "latency counts from when a record should have been sent"},
			&cli.BoolFlag{Name: "sync", Usage: "wait for each record before the next"},
			&cli.StringFlag{Name: "transactional-id", Usage: "send in transactions under `ID`; several producers add -1, -2, ..."},
			&cli.IntFlag{Name: "transaction-duration-ms", Usage: "commit every `MS` milliseconds", Value: int(d.TransactionLength.Milliseconds())},
			&cli.Int64Flag{Name: "warmup-records", Usage: "print a second sum without the first `N` records"},
			&cli.IntFlag{Name: "reporting-interval", Usage: "print a line every `MS` milliseconds", Value: int(d.Interval.Milliseconds())},
			&cli.StringFlag{Name: "csv", Usage: "write the time line to `FILE`"},
			&cli.StringFlag{Name: "plot", Usage: "draw throughput and latencies over time to `FILE` (.svg or .png)"},
			&cli.BoolFlag{Name: "print-metrics", Usage: "print the client's counters at the end"},
			&cli.BoolFlag{Name: "print-config", Usage: "print the producer's properties and end"},
		),
		Action: benchProduce,
	}
}

// msFlag reads a flag in milliseconds.
func msFlag(c *cli.Context, name string) (time.Duration, error) {
	ms, err := int32Flag(c, name, 0)
	return time.Duration(ms) * time.Millisecond, err
}

func benchProduce(c *cli.Context) error {
	o := bench.DefaultProduceOptions()
	o.Topic, o.Records, o.RecordSize, o.PayloadFile = c.String("topic"), c.Int64("num-records"), c.Int("record-size"), c.String("payload-file")
	o.PayloadDelimiter, o.PayloadMonotonic, o.Throughput = c.String("payload-delimiter"), c.Bool("payload-monotonic"), c.Float64("throughput")
	o.Producers, o.OpenLoop, o.Sync, o.TransactionalID = c.Int("producers"), c.Bool("open-loop"), c.Bool("sync"), c.String("transactional-id")
	o.Warmup, o.CSV, o.Plot = c.Int64("warmup-records"), c.String("csv"), c.String("plot")
	o.PrintConfig, o.PrintMetrics = c.Bool("print-config"), c.Bool("print-metrics")
	var err error
	if o.TransactionLength, err = msFlag(c, "transaction-duration-ms"); err != nil {
		return err
	}
	if o.Interval, err = msFlag(c, "reporting-interval"); err != nil {
		return err
	}
	if !o.PrintConfig {
		if err := need(c, "topic"); err != nil {
			return err
		}
	}
	return bench.Produce(c.Context, connection(c, "command-property"), o, output(c))
}

func benchConsumeCommand() *cli.Command {
	d := bench.DefaultConsumeOptions()
	return &cli.Command{
		Name: "consume", Usage: "read records; Kafka's consumer-perf-test",
		Description: "Reads as a member of a group until --num-records have come, and prints the lines of Kafka's tool.\n\n" +
			"Example:\n\n   cairn bench consume --topic load --num-records 1000000",
		Flags: append(connectionFlags("command-property", "consumer-property"), jsonFlag(),
			&cli.StringFlag{Name: "topic", Usage: "`NAME` of the topic"},
			&cli.Int64Flag{Name: "num-records", Aliases: []string{"messages"}, Usage: "read `N` records"},
			&cli.StringFlag{Name: "group", Usage: "read as a member of group `ID` (default: a new group)"},
			&cli.IntFlag{Name: "fetch-size", Usage: "ask for `BYTES` of a partition at a time", Value: d.FetchSize},
			&cli.BoolFlag{Name: "from-latest", Usage: "begin at the end where the group has no position"},
			&cli.IntFlag{Name: "timeout", Usage: "end after `MS` milliseconds without a record", Value: int(d.Timeout.Milliseconds())},
			&cli.BoolFlag{Name: "show-detailed-stats", Usage: "print a line at each interval"},
			&cli.IntFlag{Name: "reporting-interval", Usage: "the interval, in `MS` milliseconds", Value: int(d.Interval.Milliseconds())},
			&cli.BoolFlag{Name: "hide-header", Usage: "print no header"},
			&cli.BoolFlag{Name: "print-config", Usage: "print the consumer's properties and end"},
		),
		Action: func(c *cli.Context) error {
			o := bench.DefaultConsumeOptions()
			o.Topic, o.Records, o.Group, o.FetchSize = c.String("topic"), c.Int64("num-records"), c.String("group"), c.Int("fetch-size")
			o.FromLatest, o.Detailed, o.HideHeader, o.Print = c.Bool("from-latest"), c.Bool("show-detailed-stats"), c.Bool("hide-header"), c.Bool("print-config")
			var err error
			if o.Timeout, err = msFlag(c, "timeout"); err != nil {
				return err
			}
			if o.Interval, err = msFlag(c, "reporting-interval"); err != nil {
				return err
			}
			if !o.Print {
				if err := need(c, "topic"); err != nil {
					return err
				}
			}
			return bench.Consume(c.Context, connection(c, "command-property"), o, output(c))
		},
	}
}

func benchEndToEndCommand() *cli.Command {
	d := bench.DefaultEndToEndOptions()
	return &cli.Command{
		Name: "end-to-end", Usage: "measure from send to receipt; Kafka's e2e-latency",
		Description: "Sends one record after the other, each when the one before was read again.\n\n" +
			"Example:\n\n   cairn bench end-to-end --topic latency --num-records 10000 --record-size 100",
		Flags: append(connectionFlags("command-property"), jsonFlag(),
			&cli.StringFlag{Name: "topic", Usage: "`NAME` of the topic"},
			&cli.Int64Flag{Name: "num-records", Usage: "send `N` records", Value: d.Records},
			&cli.IntFlag{Name: "record-size", Usage: "values of `BYTES`", Value: d.RecordSize},
			&cli.StringFlag{Name: "producer-acks", Usage: "`ACKS`: 1 or all", Value: d.Acks},
			&cli.IntFlag{Name: "timeout-ms", Usage: "give up when a record does not come back for `MS` milliseconds", Value: int(d.Timeout.Milliseconds())},
		),
		Action: func(c *cli.Context) error {
			if err := need(c, "topic"); err != nil {
				return err
			}
			timeout, err := msFlag(c, "timeout-ms")
			if err != nil {
				return err
			}
			o := bench.EndToEndOptions{Topic: c.String("topic"), Records: c.Int64("num-records"), RecordSize: c.Int("record-size"), Acks: c.String("producer-acks"), Timeout: timeout}
			return bench.EndToEnd(c.Context, connection(c, "command-property"), o, output(c))
		},
	}
}

func verifyCommand() *cli.Command {
	d := bench.DefaultVerifyOptions()
	return &cli.Command{
		Name: "verify", Usage: "send numbered records, read them back, and compare",
		Description: "Sends records whose values are PREFIX.0, PREFIX.1, ..., reads the topic from where it ended before, and tells which acknowledged\n" +
			"records are lost, which records are there twice, out of order, or although they were refused. Run it while brokers come and go.\n" +
			"An interrupt ends the sending; what was sent is compared. The exit code is 1 when something is not as acknowledged.\n\n" +
			"Examples:\n\n   cairn verify --topic check --max-messages 1000000\n   cairn verify --topic check --throughput 5000 --command-property acks=1 --json",
		Flags: append(connectionFlags("command-property", "producer-property"), jsonFlag(),
			&cli.StringFlag{Name: "topic", Usage: "`NAME` of a topic that exists"},
			&cli.Int64Flag{Name: "max-messages", Usage: "send `N` records", Value: d.Messages},
			&cli.Float64Flag{Name: "throughput", Usage: "send `N` records per second; -1: as fast as it goes", Value: d.Throughput},
			&cli.StringFlag{Name: "value-prefix", Usage: "values begin with `TEXT` (default: of this run alone)"},
			&cli.BoolFlag{Name: "events", Usage: "print a JSON object for each event, as Kafka's verifiable producer does"},
			&cli.IntFlag{Name: "timeout-ms", Usage: "reading back may take `MS` milliseconds longer than records need", Value: int(d.Timeout.Milliseconds())},
		),
		Action: func(c *cli.Context) error {
			if err := need(c, "topic"); err != nil {
				return err
			}
			timeout, err := msFlag(c, "timeout-ms")
			if err != nil {
				return err
			}
			o := bench.VerifyOptions{
				Topic: c.String("topic"), Messages: c.Int64("max-messages"), Throughput: c.Float64("throughput"), ValuePrefix: c.String("value-prefix"),
				Events: c.Bool("events"), Timeout: timeout,
			}
			return bench.Verify(c.Context, connection(c, "command-property"), o, output(c))
		},
	}
}
