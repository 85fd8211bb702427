package main

import (
	"github.com/urfave/cli/v2"

	"cairn/tools"
	"cairn/tools/segment"
)

const dumpHelp = `With --data-dir reads the data directory of a stopped broker, and changes nothing in it; with --bootstrap-server asks a running broker, for
batches the leader, up to the high watermark. Batches and records are printed in the lines of Kafka's own tool. A batch that is damaged is shown as
such and does not end the dump, but the exit code is then 1.

The filters pick whole batches: those with an offset, with a timestamp in the range, of the producer. --verify reads all that is stored and checks
CRCs, offsets, and that indexes and the Raft log agree with the batches; it says what is wrong and what to do. Without --topic it verifies the whole
directory, and without --verify lists its partitions.

--export-segments writes the batches, as they are, into segment files of Kafka (.log, .index, .timeindex, .txnindex) below DIR, one directory for each
partition; --import-segments produces the records of such files, cairn's or those of a stopped Kafka, to a topic of a running cluster. They keep their
offsets where the partition is empty and the files begin at 0 without a gap; else it says which became which.

Examples:

   cairn dump --data-dir data --topic words --partition 0
   cairn dump --data-dir data --topic words --print-data-log --from-time 2026-01-31T12:00 --to-time 2026-01-31T12:05
   cairn dump --bootstrap-server localhost:9092 --topic words --partition 0 --producer-id 1000
   cairn dump --bootstrap-server localhost:9092 --topic words --raft --broker 2
   cairn dump --data-dir data --verify
   cairn dump --data-dir data --topic words --partition 0 --quarantine
   cairn dump --bootstrap-server localhost:9092 --topic words --export-segments /backup
   cairn dump --bootstrap-server localhost:9092 --topic words --import-segments /backup`

func dumpCommand() *cli.Command {
	segments := segment.DefaultConfig()
	return &cli.Command{
		Name:        "dump",
		Usage:       "print or verify what a broker has stored of a partition",
		Description: dumpHelp,
		Flags: append(connectionFlags(),
			&cli.StringFlag{Name: "data-dir", Usage: "the data directory `DIR` (log.dirs) of a stopped broker"},
			&cli.StringFlag{Name: "topic", Usage: "`NAME` of the topic; without it the partitions in the directory are listed"},
			&cli.IntFlag{Name: "partition", Usage: "partition `N` (default: 0, with --verify all)"},
			&cli.IntFlag{Name: "broker", Usage: "ask broker `ID` with --raft, --quarantine or --verify (default: the leader, with --verify all replicas)", Value: -1},
			&cli.Int64Flag{Name: "from", Usage: "start with the batch that holds `OFFSET`"},
			&cli.Int64Flag{Name: "to", Usage: "end before `OFFSET`", Value: -1},
			&cli.StringFlag{Name: "from-time", Usage: "batches with a record of that `TIME` or later: ms since 1970, or YYYY-MM-DDThh:mm:ss.sss"},
			&cli.StringFlag{Name: "to-time", Usage: "batches with a record before `TIME`"},
			&cli.Int64Flag{Name: "producer-id", Usage: "batches of the producer with that `ID`", Value: -1},
			&cli.BoolFlag{Name: "print-data-log", Usage: "print the records of each batch"},
			&cli.BoolFlag{Name: "offsets-decoder", Usage: "print the records as what those of __consumer_offsets mean (commits and classic groups)"},
			&cli.BoolFlag{Name: "transaction-log-decoder", Usage: "print the records as what those of __transaction_state mean"},
			&cli.BoolFlag{Name: "quarantine", Usage: "print the batches that were taken out of the log instead, by leader epoch and offset"},
			&cli.BoolFlag{Name: "raft", Usage: "print the state and the entries of the Raft log instead: terms, leader epochs, members, void proposals"},
			&cli.BoolFlag{Name: "verify", Usage: "check all that is stored instead of printing it"},
			&cli.StringFlag{Name: "export-segments", Usage: "write segment files of Kafka below `DIR` instead; without --partition of all partitions"},
			&cli.IntFlag{Name: "segment-bytes", Usage: "with --export-segments: a segment has at most `BYTES` (segment.bytes)", Value: segments.SegmentBytes},
			&cli.IntFlag{Name: "index-interval-bytes", Usage: "with --export-segments: an entry of the index for each `BYTES` (index.interval.bytes)", Value: segments.IndexIntervalBytes},
			&cli.StringFlag{Name: "import-segments", Usage: "produce the records of the segment files in `DIR` to the topic instead"},
			jsonFlag(),
		),
		Action: dump,
	}
}

func dump(c *cli.Context) error {
	if c.String("data-dir") == "" && !c.IsSet("bootstrap-server") && !c.IsSet("command-config") {
		return usagef("say what to read: --data-dir of a stopped broker, or --bootstrap-server of a running one; `%s --help` shows what is taken", c.Command.HelpName)
	}
	if c.String("data-dir") != "" && (c.IsSet("bootstrap-server") || c.IsSet("broker")) {
		return usagef("--data-dir excludes --bootstrap-server and --broker: the directory of a stopped broker is read, a running one is asked")
	}
	switch {
	case c.IsSet("export-segments") && c.IsSet("import-segments"):
		return usagef("--export-segments and --import-segments exclude each other")
	case c.IsSet("import-segments"):
		return importSegments(c)
	case c.Bool("verify"):
		return dumpVerify(c)
	case c.IsSet("export-segments"):
		return exportSegments(c)
	}
	if c.String("topic") == "" {
		for _, name := range []string{"partition", "broker", "from", "to", "from-time", "to-time", "producer-id", "print-data-log", "raft", "quarantine"} {
			if c.IsSet(name) {
				return usagef("--%s needs --topic; without both, the partitions in the directory are listed", name)
			}
		}
		if c.String("data-dir") == "" {
			return usagef("--topic is missing; `cairn topics list` shows the topics of a running cluster")
		}
		return tools.ListStored(c.String("data-dir"), output(c))
	}
	o, err := dumpOptions(c)
	if err != nil {
		return err
	}
	return tools.Dump(c.Context, connection(c, ""), o, output(c))
}

func dumpOptions(c *cli.Context) (tools.DumpOptions, error) {
	o := tools.DumpOptions{
		DataDir: c.String("data-dir"), Topic: c.String("topic"), PrintData: c.Bool("print-data-log"), Raft: c.Bool("raft"), Quarantine: c.Bool("quarantine"),
	}
	var err error
	if o.Partition, err = int32Flag(c, "partition", 0); err != nil {
		return o, err
	}
	if o.Broker, err = int32Flag(c, "broker", -1); err != nil {
		return o, err
	}
	switch offsets, transactions := c.Bool("offsets-decoder"), c.Bool("transaction-log-decoder"); {
	case offsets && transactions:
		return o, usagef("--offsets-decoder and --transaction-log-decoder exclude each other")
	case offsets:
		o.Decoder = tools.DecodeOffsets
	case transactions:
		o.Decoder = tools.DecodeTransactions
	}
	o.Filter, err = dumpFilter(c)
	return o, err
}

func dumpFilter(c *cli.Context) (tools.DumpFilter, error) {
	f := tools.AllBatches()
	if f.From = c.Int64("from"); f.From < 0 {
		return f, usagef("--from %d: want an offset of 0 or more", f.From)
	}
	if f.To = c.Int64("to"); c.IsSet("to") && f.To < 0 {
		return f, usagef("--to %d: want an offset of 0 or more", f.To)
	}
	if f.ProducerID = c.Int64("producer-id"); c.IsSet("producer-id") && f.ProducerID < 0 {
		return f, usagef("--producer-id %d: want 0 or more", f.ProducerID)
	}
	for name, ms := range map[string]*int64{"from-time": &f.FromMs, "to-time": &f.ToMs} {
		if text := c.String(name); text != "" {
			var err error
			if *ms, err = tools.ParseDumpTime("--"+name, text); err != nil {
				return f, usagef("%w", err)
			}
		}
	}
	return f, nil
}

// refuse says that flags do not go with what.
func refuse(c *cli.Context, what string, names ...string) error {
	for _, name := range names {
		if c.IsSet(name) {
			return usagef("%s does not go with --%s", what, name)
		}
	}
	return nil
}

// somePartition is --partition, -1 when it was not given.
func somePartition(c *cli.Context) (int32, error) {
	if !c.IsSet("partition") {
		return -1, nil
	}
	return int32Flag(c, "partition", 0)
}

func dumpVerify(c *cli.Context) error {
	if err := refuse(c, "--verify, which checks all that is stored,", "from", "to", "from-time", "to-time", "producer-id", "print-data-log", "raft",
		"quarantine", "export-segments"); err != nil {
		return err
	}
	if c.String("topic") == "" && (c.IsSet("partition") || c.String("data-dir") == "") {
		return usagef("--topic is missing; only a data directory is verified without it")
	}
	o := tools.VerifyStoredOptions{DataDir: c.String("data-dir"), Topic: c.String("topic")}
	var err error
	if o.Partition, err = somePartition(c); err != nil {
		return err
	}
	if o.Broker, err = int32Flag(c, "broker", -1); err != nil {
		return err
	}
	return tools.VerifyStored(c.Context, connection(c, ""), o, output(c))
}

func exportSegments(c *cli.Context) error {
	if err := refuse(c, "--export-segments", "print-data-log", "raft", "quarantine", "broker", "offsets-decoder", "transaction-log-decoder"); err != nil {
		return err
	}
	if err := need(c, "topic", "export-segments"); err != nil {
		return err
	}
	o := tools.ExportOptions{
		DataDir: c.String("data-dir"), Topic: c.String("topic"), Dir: c.String("export-segments"),
		Segments: segment.Config{SegmentBytes: c.Int("segment-bytes"), IndexIntervalBytes: c.Int("index-interval-bytes")},
	}
	var err error
	if o.Partition, err = somePartition(c); err != nil {
		return err
	}
	if o.Filter, err = dumpFilter(c); err != nil {
		return err
	}
	return tools.ExportSegments(c.Context, connection(c, ""), o, output(c))
}

func importSegments(c *cli.Context) error {
	if err := refuse(c, "--import-segments, which produces all records of the files,", "data-dir", "from", "to", "from-time", "to-time", "producer-id",
		"print-data-log", "raft", "quarantine", "broker", "verify", "offsets-decoder", "transaction-log-decoder"); err != nil {
		return err
	}
	if err := need(c, "topic", "import-segments"); err != nil {
		return err
	}
	o := tools.ImportOptions{Dir: c.String("import-segments"), Topic: c.String("topic")}
	var err error
	if o.Partition, err = somePartition(c); err != nil {
		return err
	}
	return tools.ImportSegments(c.Context, connection(c, ""), o, output(c))
}
