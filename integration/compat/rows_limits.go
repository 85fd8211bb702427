package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const limitsProducer = "cairn.Limits" // java/src/main/java/cairn/Limits.java

// limitsStory has stock producers send to a partition that refuses acks=all: the rows of retries and time limits. All of them go on at once, with
// the first row that asks.
type limitsStory struct {
	*story
	played *answer
}

// limitRows are played while the topic "clamp" refuses.
func (s *story) limitRows() []row {
	x := &limitsStory{story: s}
	const producer = "Java producer"
	return []row{
		{producer, "delivery-timeout: no retries, three retries, 5 s for each record", x.deliveryTimeout},
		{producer, "batch-deadline: the records of a batch expire together", x.batchDeadline},
		{producer, "delivery-timeout-rule, idempotence-acks: refused when it is made", x.refusedConfigs},
		{"Java producer and consumer", "defaults: those that cairn bench --print-config prints", x.defaults},
	}
}

// outcome is how a record of a run ended.
type recordOutcome struct {
	ms   int
	text string
}

func (x *limitsStory) run(name string) ([]recordOutcome, error) {
	if x.played == nil {
		a := x.kafka(x.ctx, limitsProducer, "clamp",
			"none:1:await:retries=0:enable.idempotence=false",
			"few:1:await:retries=3:retry.backoff.ms=300:retry.backoff.max.ms=300:enable.idempotence=false",
			"each:3:await:delivery.timeout.ms=5000:request.timeout.ms=2000",
			"batch:10:batch:delivery.timeout.ms=5000:request.timeout.ms=2000:linger.ms=100",
			"rule:1:await:delivery.timeout.ms=1000", "acks:1:await:enable.idempotence=true:acks=1", "all:0:defaults")
		x.played = &a
	}
	var list []recordOutcome
	for line := range strings.Lines(x.played.out) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			first, text, _ := strings.Cut(rest, " ")
			ms, err := strconv.Atoi(first)
			if err != nil {
				text = rest
			}
			list = append(list, recordOutcome{ms, text})
		}
	}
	if x.played.code != 0 || len(list) == 0 {
		return nil, fmt.Errorf("nothing of %s in %s", name, x.played)
	}
	return list, nil
}

// within says whether a time in ms is about what was wanted; a busy machine may take longer.
func within(ms, want int) bool { return ms >= want-200 && ms <= want+2500 }

func (x *limitsStory) deliveryTimeout() error {
	none, err1 := x.run("none")
	few, err2 := x.run("few")
	each, err3 := x.run("each")
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if len(each) != 3 || none[0].ms >= few[0].ms || few[0].ms >= each[0].ms {
		return fmt.Errorf("no retries %v, three %v, the time limit %v", none, few, each)
	}
	for i, r := range each {
		if !within(r.ms, 5000*(i+1)) || !strings.HasPrefix(r.text, "TimeoutException ") {
			return fmt.Errorf("record %d ended at %d ms: %s", i+1, r.ms, r.text)
		}
	}
	for _, r := range []recordOutcome{none[0], few[0]} {
		if !strings.HasPrefix(r.text, "NotEnoughReplicasException ") {
			return fmt.Errorf("with few retries: %s", r.text)
		}
	}
	return x.offset("clamp", "clamp:0:1")
}

func (x *limitsStory) batchDeadline() error {
	batch, err := x.run("batch")
	if err != nil {
		return err
	}
	for _, r := range batch {
		if len(batch) != 10 || !within(r.ms, 5000) || !strings.HasPrefix(r.text, "TimeoutException Expiring 10 record(s) for clamp-0:") {
			return fmt.Errorf("the records of a batch of ten: %v", batch)
		}
	}
	return nil
}

func (x *limitsStory) refusedConfigs() error {
	for name, want := range map[string]string{
		"rule": "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms",
		"acks": "Must set acks to all in order to use the idempotent producer",
	} {
		got, err := x.run(name)
		if err != nil {
			return err
		}
		if len(got) != 1 || !strings.HasPrefix(got[0].text, "refused ") || !strings.Contains(got[0].text, want) {
			return fmt.Errorf("%s: %v, want %q", name, got, want)
		}
	}
	return nil
}

// defaults compares cairn's with those of the Java clients, as far as both have them.
func (x *limitsStory) defaults() error {
	for client, tool := range map[string]struct {
		command string
		differ  []string // what a load tool does differently on purpose, or prints in its own words
		least   int
	}{
		"producer": {"bench produce", []string{"bootstrap.servers", "client.id", "acks"}, 20},
		"consumer": {"bench consume --from-latest", []string{"bootstrap.servers", "client.id", "group.id", "partition.assignment.strategy"}, 15},
	} {
		stock, err := x.run(client)
		if err != nil {
			return err
		}
		a := x.cairn(x.ctx, tool.command, "--print-config", "--json")
		var own map[string]any
		if err := json.Unmarshal([]byte(a.out), &own); err != nil {
			return fmt.Errorf("%w: %s", err, a)
		}
		for _, name := range tool.differ {
			delete(own, name)
		}
		same := 0
		for _, line := range stock {
			name, value, _ := strings.Cut(line.text, "=")
			if got, ok := own[name]; ok && fmt.Sprint(got) == value {
				same++
			} else if ok && (value != "null" || fmt.Sprint(got) != "") {
				return fmt.Errorf("%s %s is %v here, %s there", client, name, got, value)
			}
		}
		if same < tool.least {
			return fmt.Errorf("only %d defaults of the %s are in both", same, client)
		}
	}
	return nil
}
