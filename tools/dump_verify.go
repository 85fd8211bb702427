package tools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cairn/engine"
	"cairn/internal/ids"
)

// VerifyStoredOptions says whose data to verify.
type VerifyStoredOptions struct {
	DataDir   string // of a stopped broker; empty: running brokers are asked
	Topic     string // empty: all in the directory
	Partition int32  // -1: all of the topic
	Broker    int32  // the running broker; -1: all that have a replica
}

// verifiedReplica is what was found in one replica of a partition.
type verifiedReplica struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Source    string `json:"source"` // a directory, or a broker
	engine.Verification
	Advice []string `json:"advice"`
}

// problemStore: rows cannot be read at all.
const problemStore engine.ProblemPart = "store"

// advice is what to do about problems of a part.
var advice = []struct {
	part engine.ProblemPart
	text string
}{
	{problemStore, "The store cannot be read. If all partitions here have other in-sync replicas (`cairn topics describe`), empty this data directory and start the " +
		"broker: it copies everything anew. If not, keep a copy of the directory, and save what can be read with --export-segments."},
	{engine.ProblemRecords, "Records are damaged or missing in this replica. With another in-sync replica (`cairn topics describe`) start the broker: it notices when it " +
		"reads them, and copies the replica anew. Without one, save what can be read with --export-segments; reads of the rest are answered with KAFKA_STORAGE_ERROR."},
	{engine.ProblemIndex, "The records are whole, but lookups by time, or which transactions were aborted, may be told wrongly. Have the replica copied anew: " +
		"`cairn reassign` it away from this broker and back."},
	{engine.ProblemLog, "What is stored about the log does not agree with it, so this replica must not lead. Keep a copy of the directory for those who look into it, and " +
		"have the replica copied anew: `cairn reassign` it away from this broker and back, or empty the directory if all partitions have other in-sync replicas."},
}

// VerifyStored reads all that is stored of partitions, and checks CRCs, offsets, and that records, indexes and the Raft log agree. It changes
// nothing. ErrDamaged when they do not.
func VerifyStored(ctx context.Context, conn Connection, o VerifyStoredOptions, out Output) (err error) {
	v := &storedVerifier{out: out}
	if o.DataDir == "" {
		err = v.live(ctx, conn, o)
	} else {
		err = v.directory(ctx, o)
	}
	if err == nil && v.problems > 0 {
		err = fmt.Errorf("%w: problems in %d of %d replicas", ErrDamaged, v.damaged, v.replicas)
	}
	return err
}

// storedVerifier prints what is found and counts.
type storedVerifier struct {
	out                         Output
	replicas, damaged, problems int
}

func (v *storedVerifier) directory(ctx context.Context, o VerifyStoredOptions) (err error) {
	e, err := openStored(o.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	infos, err := storedPartitions(e)
	if err != nil {
		return err
	}
	infos = slices.DeleteFunc(infos, func(i engine.PartitionInfo) bool {
		return o.Topic != "" && i.Topic != o.Topic || o.Partition >= 0 && i.Partition != o.Partition
	})
	bar := v.out.Progress("Verifying "+o.DataDir, int64(len(infos)), InReplicas)
	defer bar.Clear()
	for _, i := range infos {
		found, err := e.Inspect(ctx, i.ID)
		bar.Add(1)
		bar.Clear()
		if err := v.print(topicPartition{i.Topic, i.Partition}, o.DataDir, found, err); err != nil {
			return err
		}
	}
	switch {
	case v.replicas > 0:
		return nil
	case o.Topic == "":
		v.out.note("%s has no partitions.", o.DataDir)
		return nil
	}
	return fmt.Errorf("%s has nothing of that topic and partition; `cairn dump --data-dir %s` lists what it has", o.DataDir, o.DataDir)
}

// live has the brokers verify their replicas, one after the other.
func (v *storedVerifier) live(ctx context.Context, conn Connection, o VerifyStoredOptions) error {
	cl, err := conn.openAdmin(ctx, v.out)
	if err != nil {
		return err
	}
	defer cl.Close()
	addresses, err := brokerAddresses(ctx, cl)
	if err != nil {
		return err
	}
	if o.Broker >= 0 && addresses[o.Broker] == "" {
		return fmt.Errorf("broker %d is not alive, those that are: %s; verify its data directory with --data-dir", o.Broker, joinIDs(slices.Sorted(maps.Keys(addresses)), ""))
	}
	topics, _, err := TopicSelection{Topic: o.Topic}.find(ctx, cl)
	if err != nil {
		return err
	}
	for _, t := range topics {
		for _, p := range t.Partitions {
			if deref(t.Topic) != o.Topic || o.Partition >= 0 && p.Partition != o.Partition {
				continue
			}
			for _, id := range p.Replicas {
				if o.Broker >= 0 && id != o.Broker {
					continue
				}
				tp, source := topicPartition{o.Topic, p.Partition}, fmt.Sprintf("broker %d", id)
				if addresses[id] == "" {
					v.out.warn("%s at %s was not verified: the broker is not alive; --data-dir reads its directory", tp, source)
					continue
				}
				found, err := inspectAt(ctx, conn, addresses[id], tp)
				if err := v.print(tp, source, found, err); err != nil {
					return err
				}
			}
		}
	}
	if v.replicas == 0 {
		return fmt.Errorf("no replica of that topic and partition was verified; `cairn topics describe --topic %s` shows where they are", o.Topic)
	}
	return nil
}

// print shows what was found in one replica; failed says that it could not be read to the end, which is a problem of its own if what is stored is to
// blame.
func (v *storedVerifier) print(tp topicPartition, source string, found engine.Verification, failed error) error {
	if failed != nil && !engine.IsDamage(failed) {
		return fmt.Errorf("%s at %s: %w", tp, source, failed)
	}
	if failed != nil {
		found.Problems = append(found.Problems, engine.Problem{Part: problemStore, Offset: ids.NoOffset, What: failed.Error()})
	}
	r := verifiedReplica{Topic: tp.Topic, Partition: tp.Partition, Source: source, Verification: found}
	for _, a := range advice {
		if slices.ContainsFunc(found.Problems, func(p engine.Problem) bool { return p.Part == a.part }) {
			r.Advice = append(r.Advice, a.text)
		}
	}
	v.replicas++
	v.problems += len(found.Problems)
	if len(found.Problems) > 0 {
		v.damaged++
	}
	if v.out.JSON {
		return v.out.writeJSON(r)
	}
	_, err := v.out.Out.Write([]byte(r.text()))
	return err
}

func (r *verifiedReplica) text() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s-%d at %s\tlogStartOffset: %d\tlogEndOffset: %d\tbatches: %d\tbytes: %d\tentries: %d\ttimeRows: %d\tabortedTransactions: %d\t",
		r.Topic, r.Partition, r.Source, r.Start, r.End, r.Batches, r.Bytes, r.Entries, r.TimeRows, r.AbortedRows)
	if len(r.Problems) == 0 {
		s.WriteString("ok\n")
		return s.String()
	}
	fmt.Fprintf(&s, "problems: %d\n", len(r.Problems))
	for _, p := range r.Problems {
		fmt.Fprintf(&s, "\t%s: %s\n", p.Part, p)
	}
	for _, a := range r.Advice {
		fmt.Fprintf(&s, "\t%s\n", a)
	}
	return s.String()
}
