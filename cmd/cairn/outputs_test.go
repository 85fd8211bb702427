package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// elsewhere are the commands whose output is kept by goldens of other packages: they start processes.
var elsewhere = map[string]string{
	"cairn start":   "its one line is compared here, too, but no line of the script runs it",
	"cairn dev":     "tools/dev/testdata",
	"cairn lab run": "tools/lab/testdata",
}

// TestEachOutputGolden runs every command against a node, for people and for programs, and compares what it prints. What only happens to larger
// or damaged clusters is kept by the goldens of package tools.
func TestEachOutputGolden(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	address, stop := startedNode(t, data)
	s := &transcript{t: t, at: address, dir: t.TempDir(), data: data, texts: map[string]*strings.Builder{}, seen: map[string]bool{}}
	for _, part := range []func(*transcript){
		goldenTopics, goldenRecords, goldenGroups, goldenConfigs, goldenAdmin, goldenReplicas, goldenTransactions, goldenStored, goldenLoad, goldenEnd,
	} {
		part(s)
	}
	s.texts["start"] = &strings.Builder{}
	s.texts["start"].WriteString(s.fixed(stop()))
	s.compare()
	var check func(path string, cmds []*cli.Command)
	check = func(path string, cmds []*cli.Command) {
		for _, c := range cmds {
			line := path + " " + c.Name
			check(line, c.Subcommands)
			if elsewhere[line] != "" || len(c.Subcommands) > 0 && !s.seen[line] {
				continue
			}
			if !s.seen[line] {
				t.Errorf("%s has no golden of what it prints", line)
			}
			if !s.seen[line+" --json"] && strings.Contains(strings.Join(allFlags(c), " "), "json") {
				t.Errorf("%s --json has no golden of what it prints", line)
			}
		}
	}
	check("cairn", newApp(&bytes.Buffer{}, &bytes.Buffer{}).Commands)
}

func allFlags(c *cli.Command) (names []string) {
	for name := range flagNames(c.Flags) {
		names = append(names, name)
	}
	return names
}

// both runs a line as it is and with --json.
func (s *transcript) both(line string) {
	s.run(line)
	s.run(line + " --json")
}

func (s *transcript) bothLoose(line string) {
	s.loose(line)
	s.loose(line + " --json")
}

func goldenTopics(s *transcript) {
	s.run("topics create --topic words --partitions 2 --config retention.ms=86400000")
	s.run("topics create --topic more --partitions 1 --replica-assignment 1") // refused
	s.run("topics create --topic more --json")
	s.run("topics create --topic a.b")
	s.run("topics create --topic words")
	s.await("topics describe --topic words", func(out string) bool { return strings.Count(out, "Leader: 1") == 2 })
	s.both("topics list")
	s.both("topics describe --topic words")
	s.both("topics describe --under-replicated")
	s.both("topics describe --topics-with-overrides")
	s.run("topics alter --topic more --partitions 2")
	s.run("topics alter --topic more --config cleanup.policy=compact --json")
	s.run("topics alter --topic more --partitions 1")
	s.run("topics delete --topic a.b")
	s.run("topics delete --topic nowhere")
}

func goldenRecords(s *transcript) {
	s.file("pairs", "k1:one\nk2:two\n")
	s.file("objects", `{"key":"azM=","value":"dGhyZWU=","headers":[{"key":"h","value":"MQ=="}]}`+"\n")
	const pairs = " --reader-property parse.key=true --reader-property key.separator=:"
	s.run("produce --topic words --partition 0 --sync --file DIR/pairs" + pairs)
	s.run("produce --topic words --partition 1 --file DIR/pairs --json" + pairs)
	s.run("produce --topic words --partition 1 --input json --file DIR/objects --json")
	s.run("produce --topic words --file DIR/objects --reader-property parse.key=true")
	s.run("produce --topic words --partition 7 --file DIR/pairs")
	const all = " --from-beginning --timeout-ms 10000"
	s.run("consume --topic words --partition 0 --max-messages 2" + all)
	s.run("consume --topic words --partition 1 --max-messages 3" + all + " --formatter-property print.key=true --formatter-property print.headers=true " +
		"--formatter-property print.offset=true --formatter-property print.partition=true --formatter-property print.timestamp=true --formatter-property print.epoch=true")
	s.run("consume --topic words --partition 1 --max-messages 3 --json" + all)
	s.run("consume --topic words --partition 1 --max-messages 3 --raw" + all)
	s.run("consume --include wor.* --max-messages 0" + all)
	s.run("consume --topic words --partition 0 --offset 99 --max-messages 1 --timeout-ms 10000")
	s.run("consume --topic nowhere" + all)
	s.both("get-offsets --topic words")
	s.run("get-offsets --topic-partitions words:1- --time earliest")
	s.run("get-offsets --topic nowhere")
}

func goldenGroups(s *transcript) {
	s.run("groups reset-offsets --group readers --topic words --to-offset 1 --execute")
	s.run("groups reset-offsets --group writers --topic words:0 --to-latest --execute --json")
	s.run("groups reset-offsets --group readers --all-topics --shift-by 9")
	s.run("groups reset-offsets --group readers --all-topics --to-current --export")
	s.run("groups reset-offsets --group readers --to-earliest")
	s.both("groups list")
	s.run("groups list --state --type")
	for _, what := range []string{"", " --state", " --members", " --offsets --verbose"} {
		s.both("groups describe --group readers" + what)
	}
	s.run("groups describe --group nowhere")
	s.both("groups delete-offsets --group readers --topic words:1")
	s.run("groups delete --group readers")
	s.run("groups delete --group writers --group nowhere --json")
	s.run("groups delete --group nowhere")
}

func goldenConfigs(s *transcript) {
	s.run("groups reset-offsets --group tellers --topic words:0 --to-earliest --execute")
	s.run("configs alter --topic words --add-config cleanup.policy=[compact,delete],max.message.bytes=5000")
	s.run("configs alter --topic words --delete-config cleanup.policy --json")
	s.both("configs describe --topic words")
	s.run("configs alter --group readers --add-config consumer.session.timeout.ms=50000")
	s.both("configs describe --group readers")
	s.run("configs describe --group readers --all")
	s.run("configs alter --broker 1 --add-config leader.replication.throttled.rate=1000000")
	s.both("configs describe --broker 1")
	s.run("configs alter --broker-defaults --add-config message.max.bytes=900000 --json")
	s.both("configs describe --broker-defaults")
	s.run("configs describe --entity-type groups")
	s.run("configs alter --topic words --add-config retention.years=1")
	s.run("configs alter --group readers --add-config consumer.session.timeout.ms=1")
	s.run("configs describe --topic nowhere")
	s.run("groups delete --group tellers")
	for _, kind := range []string{"users", "clients", "ips"} {
		s.run("configs describe --entity-type " + kind)
	}
}

func goldenAdmin(s *transcript) {
	s.bothLoose("log-dirs --broker-list 1 --topic-list words")
	s.run("log-dirs --broker-list 7")
	s.loose("quorum --status")
	s.loose("quorum --json")
	s.bothLoose("quorum describe --status")
	s.loose("quorum describe --replication")
	s.loose("quorum describe --replication --human-readable")
	s.run("quorum add-controller")
	s.run("quorum remove-controller")
	s.bothLoose("features")
	s.bothLoose("features describe")
	s.both("features downgrade --feature transaction.version=1 --dry-run")
	s.run("features downgrade --feature transaction.version=1 --json")
	s.both("features upgrade --feature transaction.version=2")
	s.both("features disable --feature group.version --dry-run")
	s.run("features upgrade --feature transaction.version=9")
	s.file("offsets.json", `{"version":1,"partitions":[{"topic":"words","partition":0,"offset":1}]}`)
	s.file("beyond.json", `{"version":1,"partitions":[{"topic":"words","partition":0,"offset":99},{"topic":"words","partition":1,"offset":1}]}`)
	s.both("delete-records --offset-json-file DIR/offsets.json")
	s.run("delete-records --offset-json-file DIR/beyond.json")
	s.run("acls --list")
	s.both("lab list")
	s.run("completion")
	s.run("completion zsh")
	s.run("completion fish")
	s.loose("version")
	s.runAs("version --json", func(text string) string { return scrubVersion.ReplaceAllString(text, `"$1":"V"`) })
}

func goldenReplicas(s *transcript) {
	s.file("move.json", `{"version":1,"partitions":[{"topic":"words","partition":0,"replicas":[1]}]}`)
	s.file("wide.json", `{"version":1,"partitions":[{"topic":"words","partition":0,"replicas":[1,7]}]}`)
	s.file("topics.json", `{"version":1,"topics":[{"topic":"words"}]}`)
	s.both("reassign generate --topics-to-move-json-file DIR/topics.json --broker-list 1")
	s.both("reassign execute --reassignment-json-file DIR/move.json")
	s.run("reassign execute --reassignment-json-file DIR/wide.json")
	s.both("reassign verify --reassignment-json-file DIR/move.json")
	s.both("reassign list")
	s.both("reassign cancel --reassignment-json-file DIR/move.json")
	s.both("elect --election-type preferred --topic words --partition 0")
	s.both("elect --election-type unclean --topic words --partition 0 --dry-run")
	s.run("elect --election-type preferred --topic nowhere --partition 0")
	s.both("losses")
	s.both("recover --topic words --partition 0 --to more")
	s.run("recover --topic words --partition 0 --to nowhere")
}

func goldenTransactions(s *transcript) {
	s.run("topics create --topic ledger --partitions 1")
	s.loose("bench produce --topic ledger --num-records 5 --record-size 10 --transactional-id billing")
	s.await("transactions list", func(out string) bool { return strings.Contains(out, "CompleteCommit") }) // the client does not wait for the markers
	for _, line := range []string{"transactions list", "transactions describe --transactional-id billing", "transactions describe-producers --topic ledger --partition 0"} {
		s.bothLoose(line)
	}
	s.run("transactions describe --transactional-id nobody")
	s.run("transactions describe-producers --topic ledger --partition 7")
	s.both("transactions find-hanging --topic words")
	s.both("transactions forceTerminateTransaction --transactionalId billing")
	s.run("transactions forceTerminateTransaction --transactionalId nobody")
	s.both("transactions abort --topic words --partition 0 --start-offset 99")
	s.run("transactions abort --topic words --partition 0")
}

func goldenStored(s *transcript) {
	s.run("topics create --topic kept --partitions 1")
	s.run("produce --topic kept --sync --file DIR/pairs")
	s.run("checkpoint DIR/copy")
	s.run("checkpoint --json DIR/other")
	s.run("checkpoint DIR/copy")
	s.run("restore --whole-cluster DIR/copy")
	s.run("restore --json --whole-cluster DIR/other")
	s.run("restore DIR/copy")
	const kept = "dump --data-dir DIR/copy --topic kept"
	s.both(kept + " --print-data-log")
	s.bothLoose(kept + " --verify")
	s.both(kept + " --quarantine")
	s.bothLoose(kept + " --raft")
	s.loose("dump --data-dir DIR/copy")
	s.loose("dump --data-dir DIR/copy --json")
	s.run(kept + " --partition 7")
	s.run("dump --topic kept")
	s.run(kept + " --export-segments DIR/segments")
	s.run("dump --data-dir DIR/copy --topic words --partition 1 --export-segments DIR/segments --json")
	s.run("topics create --topic again --partitions 1")
	s.both("dump --topic again --import-segments DIR/segments/kept-0")
	s.run("dump --topic more --partition 1 --import-segments DIR/segments/kept-0") // no keys, and the topic is compacted
}

func goldenLoad(s *transcript) {
	s.run("topics create --topic load --partitions 1")
	s.loose("bench produce --topic load --num-records 100 --record-size 10 --warmup-records 10 --print-metrics --csv DIR/line.csv")
	line, err := os.ReadFile(filepath.Join(s.dir, "line.csv"))
	if err != nil {
		s.t.Fatal(err)
	}
	first, rest, _ := strings.Cut(string(line), "\n")
	second, _, _ := strings.Cut(rest, "\n")
	s.texts["bench"].WriteString("line.csv:\n" + first + "\n" + withoutNumbers(second) + "\n")
	s.loose("bench produce --topic load --num-records 10 --payload-monotonic --json")
	s.run("bench produce --print-config")
	s.run("bench produce --print-config --json")
	s.loose("bench consume --topic load --num-records 50")
	s.loose("bench consume --topic load --num-records 50 --show-detailed-stats")
	s.loose("bench consume --topic load --num-records 50 --json")
	s.run("bench consume --print-config")
	s.loose("bench end-to-end --topic load --num-records 5")
	s.loose("bench end-to-end --topic load --num-records 5 --json")
	s.run("verify --topic load --max-messages 10 --value-prefix p")
	s.run("verify --topic load --max-messages 10 --value-prefix q --json")
	s.loose("verify --topic load --max-messages 1 --value-prefix r --events")
}

func goldenEnd(s *transcript) {
	s.bothLoose("status")
	s.run("topics delete --topic load,kept,again --json")
	s.run("topics delete --topic more")
}

// scrubVersion is what of a version differs from build to build.
var scrubVersion = regexp.MustCompile(`"(commit|go)":"[^"]*"`)
