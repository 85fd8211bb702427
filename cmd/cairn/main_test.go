package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// runLine runs a command line in this process.
func runLine(t *testing.T, line string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	before := os.Args // the library looks there for what is to be completed
	defer func() { os.Args = before }()
	os.Args = append([]string{"cairn"}, strings.Fields(line)...)
	code = run(t.Context(), os.Args, &out, &err)
	return code, out.String(), err.String()
}

// lineTest is a command line with its exit code and part of what is printed.
type lineTest struct {
	line string
	code int
	want string
}

func checkLines(t *testing.T, tests []lineTest) {
	t.Helper()
	for _, tc := range tests {
		code, out, err := runLine(t, tc.line)
		if code != tc.code || !strings.Contains(out+err, tc.want) {
			t.Errorf("cairn %s: exit code %d, want %d and %q:\n%s%s", tc.line, code, tc.code, tc.want, out, err)
		}
	}
}

func TestReplicationCommandsAreChecked(t *testing.T) {
	checkLines(t, []lineTest{
		{"elect --topic t --partition 0", 2, "--election-type is missing"},
		{"elect --election-type odd --topic t --partition 0", 2, "want preferred or unclean"},
		{"elect --election-type unclean", 2, "say which partitions in one way"},
		{"elect --election-type unclean --topic t", 2, "--topic needs --partition"},
		{"elect --election-type unclean --topic t --partition 0 --all-topic-partitions --dry-run", 2, "say which partitions in one way"},
		{"elect --election-type preferred --path-to-json-file /nonexistent", 1, "no such file"},
		{"losses --partition 0", 2, "--partition needs --topic"},
		{"recover --topic t --partition 0", 2, "--to is missing"},
		{"recover --topic t --to u", 2, "--partition -1"},
		{"recover --topic t --partition 0 --to u --data-dir d --remove", 2, "--remove needs a live broker"},
		{"recover --topic t --partition 0 --to u --data-dir d --broker 1", 2, "exclude each other"},
		{"reassign", 0, "execute"},
		{"reassign execute", 2, "--reassignment-json-file is missing"},
		{"reassign verify --reassignment-json-file /nonexistent", 1, "no such file"},
	})
}

// TestProducerRulesAreKafkas: what Kafka's producer refuses when it is made, and its defaults.
func TestProducerRulesAreKafkas(t *testing.T) {
	const run = "bench produce --topic t --num-records 1 --record-size 1 "
	checkLines(t, []lineTest{
		{run + "--command-property delivery.timeout.ms=1000", 2, "delivery.timeout.ms=1000 must be at least linger.ms + request.timeout.ms = 30005"},
		{run + "--command-property enable.idempotence=true --command-property acks=1", 2, "an idempotent producer needs acks=all"},
		{run + "--command-property enable.idempotence=true --command-property retries=0", 2, "an idempotent producer needs retries"},
		{run + "--command-property max.in.flight.requests.per.connection=6", 2, "may have at most 5"},
		{run + "--command-property no.such.property=1 --command-property linger.ms=-1", 2, "linger.ms"},
	})
	for command, defaults := range map[string]string{
		"produce": "acks=all enable.idempotence=true retries=2147483647 delivery.timeout.ms=120000 request.timeout.ms=30000 " +
			"max.in.flight.requests.per.connection=5 linger.ms=5 batch.size=16384",
		"consume --from-latest": "enable.auto.commit=true auto.commit.interval.ms=5000 max.poll.records=500 isolation.level=read_uncommitted group.protocol=classic " +
			"session.timeout.ms=45000 auto.offset.reset=latest",
	} {
		code, out, _ := runLine(t, "bench "+command+" --print-config")
		for _, d := range strings.Fields(defaults) {
			if line := strings.Replace(d, "=", " = ", 1) + "\n"; code != 0 || !strings.Contains(out, line) {
				t.Errorf("bench %s --print-config: exit code %d, no %q in\n%s", command, code, line, out)
			}
		}
	}
}

func TestExitCodesAndMessages(t *testing.T) {
	checkLines(t, []lineTest{
		{"version", 0, "cairn "},
		{"version --json", 0, `"version":`},
		{"help", 0, "COMMANDS:"},
		{"help", 0, "Exit codes: 0 "},
		{"topics", 0, "describe"},
		{"completion", 0, "complete -o default -F _cairn cairn"},
		{"completion tcsh", 2, "want one of bash, zsh, fish"},
		{"completion zsh fish", 2, "want one of bash, zsh, fish"},
		{"nonsense", 2, `no command "nonsense"`},
		{"completion tcsh", 2, "want one of bash, zsh, fish"},
		{"completion zsh fish", 2, "want one of bash, zsh, fish"},
		{"help topisc", 2, `did you mean "topics"`},
		{"conzume", 2, `did you mean "consume"?`},
		{"-v", 2, "no flag -v;"},
		{"--version", 2, "did you mean `cairn version`?"},
		{"topics nonsense", 2, `no command "nonsense"`},
		{"topics lsit", 2, `did you mean "list"?`},
		{"topics lst", 2, `did you mean "list"?`},
		{"topics --create --topic t", 2, "did you mean `cairn topics create`?"},
		{"topics list extra", 2, `unexpected argument "extra"`},
		{"topics list --nonsense", 2, "no flag --nonsense; `cairn topics list --help`"},
		{"topics create --topc t", 2, "did you mean --topic?"},
		{"produce --timeout x", 2, `invalid value "x" for flag --timeout`},
		{"produce --topic", 2, "flag needs an argument: --topic; `cairn produce --help`"},
		{"acls --bootstrap-server localhost:9092 --list", 1, "there are no ACLs yet"},
		{"quorum nonsense", 2, `no command "nonsense"`},
		{"quorum add-controller --command-config f", 1, "controller.quorum.voters"},
		{"quorum remove-controller --help", 0, "cairn quorum remove-controller"},
		{"quorum describe --status --replication", 2, "take one of them"},
		{"features upgrade", 2, "--feature is missing"},
		{"features upgrade --feature transaction.version", 2, "want NAME=LEVEL"},
		{"features disable --feature transaction.version=1", 2, "want NAME"},
		{"features downgrade --feature a=1 --feature a=2", 2, "a is there twice"},
		{"get-offsets --topic-partitions t:x", 2, "want a partition N, or a range FROM-TO"},
		{"configs describe --entity-type users", 2, "cairn has no quotas"},
		{"configs describe --entity-type client-metrics", 2, "--entity-type topics, groups or brokers have"},
		{"configs alter --group g --topic t --add-config a=b", 2, "say whose configs in one way"},
		{"acls --help", 0, "cairn acls --list"},
		{"help acls", 0, "cairn acls --list"},
		{"produce", 2, "--topic is missing"},
		{"produce --topic t --input xml", 2, "want lines or json"},
		{"produce --topic t --delivery-timeout-ms 100", 2, "must be at least"},
		{"produce --topic t --acks 2", 2, "want 0, 1 or all"},
		{"produce --topic t --file /nonexistent", 1, "no such file"},
		{"consume --topic t --partition -2", 2, "--partition -2"},
		{"consume --topic t --bootstrap-server nowhere", 2, "want HOST:PORT"},
		{"consume --include (", 2, "--include: error parsing regexp"},
		{"consume --include t --topic t", 2, "exclude each other"},
		{"produce --topic t --batch-size 5 --file /nonexistent", 1, "WARNING: --batch-size has no effect here"},
		{"consume --topic t --consumer.config /nonexistent", 2, "no such file"},
		{"topics list --admin.config /nonexistent", 2, "no such file"},
		{"consume --topic t --raw --json", 2, "exclude each other"},
		{"consume --topic t --isolation-level strict", 2, "want read_uncommitted or read_committed"},
		{"consume --topic t --command-config /nonexistent", 2, "no such file"},
		{"produce --topic t --reader-property nonsense=1", 2, "is unknown"},
		{"topics list --bootstrap-server 127.0.0.1:1", 1, "no broker reached"},
		{"losses --bootstrap-server nowhere", 2, "want HOST:PORT"},
		{"losses --command-config /nonexistent", 2, "no such file"},
		{"elect --election-type unclean --topic t --partition 0 --dry-run --bootstrap-server nowhere", 2, "want HOST:PORT"},
		{"groups list --in-state nonsense", 2, "--in-state nonsense: want one of Empty, "},
		{"groups list --of-type share", 2, "--of-type share: want one of Classic, Consumer"},
		{"configs describe --broker -1", 2, "want the id of a broker"},
		{"start --log-level loud", 2, "want debug, info, warn or error"},
		{"start --log-format xml", 2, "want console or json"},
		{"start --override no.such.property=1", 2, "no.such.property"},
		{"start --config /nonexistent", 2, "no such file"},
	})
}

// TestNumbersOutOfRangeAreRefused: a number that was cut down to the bits that it is sent in would be about something else.
func TestNumbersOutOfRangeAreRefused(t *testing.T) {
	for _, line := range []string{
		"transactions describe-producers --topic t --partition 4294967296",
		"transactions describe-producers --topic t --partition -1",
		"transactions describe-producers --topic t --partition 0 --broker-id 4294967297",
		"transactions abort --topic t --partition 4294967296 --start-offset 1",
		"transactions find-hanging --topic t --partition 4294967296",
		"transactions find-hanging --broker-id 4294967297",
		"transactions find-hanging --topic t --max-transaction-timeout 153722868",
		"transactions find-hanging --topic t --max-transaction-timeout -1",
		"topics create --topic t --partitions 2147483648",
		"topics create --topic t --replication-factor 32768",
		"topics alter --topic t --partitions 2147483648",
		"produce --topic t --message-send-max-retries -2",
		"produce --topic t --partition 4294967296",
		"consume --topic t --partition 4294967296",
		"reassign execute --reassignment-json-file f --timeout 9223372036855",
		"dump --data-dir d --topic t --partition 4294967296",
		"recover --topic t --partition 4294967296 --to u",
		"bench end-to-end --topic t --record-size 9223372036854775807",
	} {
		code, out, err := runLine(t, line)
		if code != 2 || !strings.Contains(err, ": want ") {
			t.Errorf("cairn %s: exit code %d, want 2 and what is wanted instead:\n%s%s", line, code, out, err)
		}
	}
}

// TestInterruptedCommandSaysSo: all that speak to a cluster, in the same words.
func TestInterruptedCommandSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, line := range []string{
		"topics list", "configs describe --topic t", "log-dirs", "quorum", "get-offsets", "features", "elect --election-type preferred --all-topic-partitions",
		"losses", "groups list", "transactions list", "status", "consume --topic t", "checkpoint /nonexistent/dir",
	} {
		var out, err bytes.Buffer
		code := run(ctx, append([]string{"cairn"}, strings.Fields(line)...), &out, &err)
		if code != 1 || strings.Count(err.String(), "interrupted; ") != 1 {
			t.Errorf("cairn %s: exit code %d, want 1 and that it was interrupted, once:\n%s%s", line, code, &out, &err)
		}
	}
}

func TestFlagsOfTopicsAndDumpAreChecked(t *testing.T) {
	checkLines(t, []lineTest{
		{"topics create", 2, "--topic is missing"},
		{"topics create --topic t --partitions 0", 2, "--partitions 0"},
		{"topics create --topic t --replication-factor -2", 2, "--replication-factor -2"},
		{"topics create --topic t --partitions 1 --replica-assignment 1", 2, "cairn: --replica-assignment"},
		{"topics alter --topic t", 2, "nothing to alter"},
		{"topics alter --topic t --partitions 3 --config retention.ms", 2, "want NAME=VALUE"},
		{"topics alter --topic t --partitions 0", 2, "--partitions 0"},
		{"topics describe --partition-size-limit-per-response 0", 2, "want a number from 1"},
		{"topics delete", 2, "say which topic"},
		{"dump", 2, "say what to read"},
		{"dump --data-dir d --bootstrap-server h:1 --topic t", 2, "--data-dir excludes --bootstrap-server"},
		{"dump --bootstrap-server h:1", 2, "--topic is missing"},
		{"dump --data-dir d --topic t --from 5 --to 5", 2, "no offset is in between"},
		{"dump --data-dir d --topic t --from-time yesterday", 2, "--from-time \"yesterday\": want YYYY"},
		{"dump --data-dir d --topic t --from-time 2 --to-time 1", 2, "nothing is in between"},
		{"dump --data-dir d --topic t --raft --quarantine", 2, "exclude each other"},
		{"dump --data-dir d --verify --raft", 2, "does not go with --raft"},
		{"dump --verify --bootstrap-server h:1", 2, "--topic is missing"},
		{"dump --data-dir d --topic t --export-segments x --import-segments y", 2, "exclude each other"},
		{"dump --data-dir d --topic t --import-segments y", 2, "does not go with --data-dir"},
		{"dump --data-dir d --topic t --export-segments x --raft", 2, "--export-segments does not go with --raft"},
		{"dump --data-dir d --export-segments x", 2, "--topic is missing"},
		{"dump --data-dir d --topic t --export-segments x --segment-bytes 5", 2, "segment.bytes 5: want"},
		{"dump --bootstrap-server h:1 --topic t --import-segments /nonexistent", 1, "no such file"},
		{"dump --data-dir /nonexistent --partition 1", 2, "--partition needs --topic"},
		{"dump --data-dir /nonexistent --topic t --from -1", 2, "--from -1"},
		{"dump --data-dir /nonexistent --topic t", 1, "must be the log.dirs"},
	})
}

// TestEachCommandHasAnExample: help is for people who do not know the flags yet.
func TestEachCommandHasAnExample(t *testing.T) {
	var check func(path string, cmds []*cli.Command)
	check = func(path string, cmds []*cli.Command) {
		for _, c := range cmds {
			line := path + " " + c.Name
			check(line, c.Subcommands)
			_, help, _ := runLine(t, strings.TrimPrefix(line, "cairn ")+" --help")
			if !strings.Contains(help, "Example") || !strings.Contains(help, line) {
				t.Errorf("help of %s has no example:\n%s", line, help)
			}
			for _, f := range c.Flags {
				if v, ok := f.(cli.VisibleFlag); ok && !v.IsVisible() {
					continue
				}
				if !strings.Contains(help, "--"+f.Names()[0]) || strings.HasSuffix(f.String(), "\t") {
					t.Errorf("help of %s does not explain --%s", line, f.Names()[0])
				}
			}
		}
	}
	check("cairn", newApp(&bytes.Buffer{}, &bytes.Buffer{}).Commands)
}

func TestHelpTellsDefaultsThatMeanSomething(t *testing.T) {
	for line, tc := range map[string]struct {
		want string
		not  string
	}{
		"dev --help":                             {"(default: 9092 if free)", "(default: -1)"},
		"consume --help":                         {"0: wait (default: 0)", "partition N alone (default"},
		"bench produce --help":                   {"over all producers\n", "over all producers (default"},
		"transactions describe-producers --help": {"NUMBER of the partition\n", "NUMBER of the partition (default"},
	} {
		if _, help, _ := runLine(t, line); !strings.Contains(help, tc.want) || strings.Contains(help, tc.not) {
			t.Errorf("cairn %s: want %q and not %q:\n%s", line, tc.want, tc.not, help)
		}
	}
}

func TestPropertiesMayHaveCommas(t *testing.T) {
	code, _, err := runLine(t, "start --override listeners=A://127.0.0.1:1,B://127.0.0.1:2 --override no.such.property=1")
	if code != 2 || !strings.Contains(err, "no.such.property") || strings.Contains(err, "want NAME=VALUE") {
		t.Errorf("exit code %d: %s", code, err)
	}
}
