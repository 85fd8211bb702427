# Everything a developer or CI runs. `make help` lists it; .ci/run calls these targets.

GO       ?= go
LINT     := -modfile=.ci/lint/go.mod
ROUNDS   ?=
FUZZTIME ?= 20s
BENCH    ?=
PEERS    ?=

.PHONY: $(shell grep -oE '^[a-z0-9-]+:' $(firstword $(MAKEFILE_LIST)) | tr -d :)

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

build: ## bin/cairn
	$(GO) build -o bin/cairn ./cmd/cairn

test: ## all tests that need no process of their own; under five minutes
	$(GO) test ./...
	cd integration/peers && $(GO) vet . && $(GO) test .

race: ## the same under the race detector
	$(GO) test -race -timeout 30m ./...

race-short: ## what of it is most concurrent: a few minutes
	$(GO) test -race -count=1 -timeout 20m ./raftgroup ./broker ./broker/controller ./broker/coordinator ./broker/group/... ./broker/isr ./broker/txn ./wire/...

fuzz: ## each fuzz test for FUZZTIME (20s); an input that fails is kept in testdata/fuzz beside its test
	.ci/fuzz $(FUZZTIME)

crash: ## crash tests of the engine: CRASH_ROUNDS (250) seeds of three crashes for each of four kinds of crash
	$(GO) test -count=1 -timeout 60m -run TestCrash ./engine -crash.rounds=$(or $(CRASH_ROUNDS),250)

model: ## model test of the engine: SEEDS (5000) histories of a store with all that can happen to it, from the seed FIRST (1) on
	$(GO) test -count=1 -timeout 60m -run TestEngineAgainstModel ./engine -walk.seeds=$(or $(SEEDS),5000) -walk.first=$(or $(FIRST),1)

integration: build ## real processes and real clients; ROUNDS=N for longer kill tests
	CAIRN_INTEGRATION=1 CAIRN_ROUNDS=$(ROUNDS) $(GO) test -count=1 -v -timeout 60m ./integration/...

integration-long: build ## the same at full length: 50 kill rounds, 5 cluster rounds, 10 GB restart
	CAIRN_INTEGRATION=1 CAIRN_LONG=1 $(GO) test -count=1 -v -timeout 170m ./integration/...

soak-kill: build ## 50 rounds of killing a single node under load
	CAIRN_INTEGRATION=1 CAIRN_LONG=1 $(GO) test -count=1 -v -timeout 60m -run TestKilledNodeKeepsAcknowledgedRecords ./integration/

reassign-long: build ## reassignments of three partitions of 128 MB under load, brokers killed on the way, and cancelled ones
	CAIRN_INTEGRATION=1 CAIRN_LONG=1 $(GO) test -count=1 -v -timeout 60m -run 'Reassignment' ./integration/

restart-10g: build ## restart of a node that holds 10 GB
	CAIRN_INTEGRATION=1 CAIRN_LONG=1 $(GO) test -count=1 -v -timeout 60m -run TestRestartServesQuickly ./integration/

txn-long: build ## processes that read, transform and write in transactions, for half an hour; brokers and processes are killed
	CAIRN_INTEGRATION=1 CAIRN_LONG=1 $(GO) test -count=1 -v -timeout 60m -run 'TestTransformLoop$$' ./integration/

compaction-long: build ## 1,000,000 keys written ten times are compacted, while a producer's latencies are measured
	CAIRN_INTEGRATION=1 CAIRN_LONG=1 $(GO) test -count=1 -v -timeout 60m -run TestCompactionLeavesTheLastValues ./integration/

inflight-long: build ## 200,000 records of an idempotent producer, five in flight, over bad connections while leaders are killed: franz-go, then Java
	CAIRN_INTEGRATION=1 CAIRN_LONG=1 $(GO) test -count=1 -v -timeout 60m -run TestInFlightFive ./integration/
	$(GO) run ./integration/compat -only='idempotent producer on a bad network' -inflight=200000

bitflip: build ## ROUNDS (200) flipped bits in stored files, of stores and of one broker of three
	$(GO) test -count=1 -v -timeout 60m -run TestFlippedBit ./engine -bitflip.rounds=$(or $(ROUNDS),200)
	CAIRN_INTEGRATION=1 CAIRN_ROUNDS=$(or $(ROUNDS),200) $(GO) test -count=1 -v -timeout 60m -run TestFlippedBitOfABroker ./integration/

chaos: build ## rounds of faults on real processes: SEED=n, ROUNDS=m, LENGTH=10s, PARALLEL=1; REPLAY=DIR repeats a failed one, CHECK=DIR judges it again
	$(GO) run ./integration/chaos -seed=$(or $(SEED),0) -rounds=$(or $(ROUNDS),1) -length=$(or $(LENGTH),10s) -parallel=$(or $(PARALLEL),1) -replay=$(REPLAY) -check=$(CHECK)

faults: ## what gives faults to disk and clock in chaos rounds does as it is told: built with its tag, and tested
	$(GO) vet -tags cairn_faults ./internal/... ./engine ./broker/... ./cmd/...
	$(GO) test -count=1 -tags cairn_faults ./internal/clock ./internal/faults

soak-retention: build ## full load on 12 partitions with retention by size: disk, memory and throughput over MINUTES (20)
	CAIRN_INTEGRATION=1 CAIRN_RETENTION=$(or $(MINUTES),20) $(GO) test -count=1 -v -timeout 170m -run TestRetentionBySize ./integration/

planted: ## faults that are built in on purpose, each of which the checker has to find, and the same rounds without
	CAIRN_INTEGRATION=1 $(GO) test -count=1 -v -timeout 20m -parallel 2 -tags cairn_planted -run TestPlanted ./integration/chaos

flapping: build ## brokers frozen and freed for 15 s each, for ten minutes
	CAIRN_INTEGRATION=1 CAIRN_LONG=1 $(GO) test -count=1 -v -timeout 60m -run TestFlappingLeavesNothingBehind ./integration/

controllers: build ## of three controllers the active one is killed every 20 s for five minutes
	CAIRN_INTEGRATION=1 CAIRN_LONG=1 $(GO) test -count=1 -v -timeout 60m -run TestControllersDieUnderLoad ./integration/

many-producers: build ## 100,000 producers on one node: memory, restart, time of a request
	CAIRN_INTEGRATION=1 CAIRN_LONG=1 $(GO) test -count=1 -v -timeout 20m -run TestManyProducers ./integration/

compat: build ## the scenarios of three clients (Java, librdkafka, Python) and Kafka's own tools: needs Java, Maven and Python, says what it skipped where they are missing
	$(GO) run ./integration/compat

compat-all: build ## the same with all clients, writes the matrix of docs/compatibility.md: needs kcat and Node too
	$(GO) run ./integration/compat -clients all

groups-defaults: build ## groups of Java and franz-go with the timeouts that nobody has set: killed, frozen, restarted; about four minutes
	$(GO) run ./integration/compat -defaults

bench: build ## measure and rewrite docs/benchmarks.md; BENCH=-quick for a first look, BENCH="-only ^failover -write" for some sections
	$(GO) run ./integration/bench $(BENCH)

bench-tool: build ## CPU per record of `cairn bench produce` beside a bare franz-go loop; fails above 15 % more
	$(GO) run ./integration/bench -only='^tool$$'

bench-groups: build ## 1,000 groups of ten members: their CPU and memory, and how long `cairn groups` takes
	$(GO) run ./integration/bench -only='^groups$$'

bench-peers: build ## Kafka, NATS JetStream and cairn in turns, about 35 minutes; writes a section of docs/benchmarks.md: needs Java and Maven; PEERS='-quick' for a first look, '-part matrix' or '-part key' for one half, '-resume' goes on after an interruption, '-before PATH' compares another build of cairn instead, '-dry-run' lists the steps
	cd integration/peers && $(GO) build -o ../../bin/peers .
	bin/peers $(PEERS)

lint: ## formatting and static checks
	@out=$$($(GO) tool $(LINT) gofumpt -l $$(git ls-files -co --exclude-standard '*.go')); \
	  if [ -n "$$out" ]; then echo "not formatted (run go tool $(LINT) gofumpt -w):"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool $(LINT) staticcheck ./...
	$(GO) tool $(LINT) errcheck -ignoretests -exclude .ci/lint/errcheck.txt ./...

check: lint test ## what must pass before a commit

run: build ## one node on 127.0.0.1:9092 with its data in ./data
	bin/cairn start

clean: ## remove what was built
	rm -rf bin
