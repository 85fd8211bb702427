package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// tabbed is a table of Kafka's: columns as wide as their longest cell, a tab behind each. The first row has the names.
func tabbed(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			fmt.Fprintf(&b, "%-*s\t", widths[i], cell)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// printRows prints values as one JSON array or as a table under heads.
func printRows[T any](out Output, values []T, heads []string, row func(T) []string) error {
	if out.JSON {
		return out.writeJSON(values)
	}
	rows := [][]string{heads}
	for _, v := range values {
		rows = append(rows, row(v))
	}
	_, err := out.Out.Write([]byte(tabbed(rows)))
	return err
}

// ListTransactionsOptions say which transactions are listed.
type ListTransactionsOptions struct {
	// LongerThan lets only transactions pass that are open for longer, in ms; negative: all.
	LongerThan int64
	// Pattern is a regular expression that the whole transactional id matches; empty: all.
	Pattern string
	// producerIDs lets only those pass; none: all.
	producerIDs []int64
}

// listedTransaction is the JSON form of a listed transaction.
type listedTransaction struct {
	TransactionalID string `json:"transactionalId"`
	Coordinator     int32  `json:"coordinator"`
	ProducerID      int64  `json:"producerId"`
	State           string `json:"state"`
}

// ListTransactions prints the transactional ids that all brokers coordinate.
func ListTransactions(ctx context.Context, conn Connection, o ListTransactionsOptions, out Output) error {
	if _, err := regexp.Compile(o.Pattern); err != nil {
		return UsageError{fmt.Errorf("--transactional-id-pattern: %w", err)}
	}
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		list, err := listTransactions(ctx, cl, o)
		if err != nil {
			return err
		}
		return printRows(out, list, []string{"TransactionalId", "Coordinator", "ProducerId", "TransactionState"}, func(t listedTransaction) []string {
			return []string{t.TransactionalID, fmt.Sprint(t.Coordinator), fmt.Sprint(t.ProducerID), t.State}
		})
	})
}

// listTransactions asks all brokers. One that does not answer makes it an error: a list with holes is none.
func listTransactions(ctx context.Context, cl *kgo.Client, o ListTransactionsOptions) ([]listedTransaction, error) {
	req := kmsg.NewPtrListTransactionsRequest()
	req.DurationFilterMillis, req.ProducerIDFilters = o.LongerThan, o.producerIDs
	if o.Pattern != "" {
		req.TransactionalIDPattern = &o.Pattern
	}
	list := []listedTransaction{}
	for _, shard := range cl.RequestSharded(ctx, req) {
		err := shard.Err
		if err == nil {
			err = brokerError(shard.Resp.(*kmsg.ListTransactionsResponse).ErrorCode, nil)
		}
		if err != nil {
			return nil, fmt.Errorf("asking broker %d for its transactions: %w", shard.Meta.NodeID, err)
		}
		for _, t := range shard.Resp.(*kmsg.ListTransactionsResponse).TransactionStates {
			list = append(list, listedTransaction{t.TransactionalID, shard.Meta.NodeID, t.ProducerID, t.TransactionState})
		}
	}
	slices.SortFunc(list, func(a, b listedTransaction) int { return strings.Compare(a.TransactionalID, b.TransactionalID) })
	return list, nil
}

// describedTransaction is the JSON form of a described transaction; StartTime and Duration are in ms, nil when none is open.
type describedTransaction struct {
	Coordinator     int32            `json:"coordinator"`
	TransactionalID string           `json:"transactionalId"`
	ProducerID      int64            `json:"producerId"`
	ProducerEpoch   int16            `json:"producerEpoch"`
	State           string           `json:"state"`
	TimeoutMs       int32            `json:"timeoutMs"`
	StartTime       *int64           `json:"startTimeMs"`
	Duration        *int64           `json:"durationMs"`
	Partitions      []topicPartition `json:"partitions"`
}

// DescribeTransaction prints the state of a transactional id.
func DescribeTransaction(ctx context.Context, conn Connection, id string, out Output) error {
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		d, err := describeTransactions(ctx, cl, time.Now(), id)
		if err != nil {
			return withListHint(err)
		}
		heads := []string{
			"CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs",
			"CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions",
		}
		return printRows(out, d, heads, func(t describedTransaction) []string {
			return []string{
				fmt.Sprint(t.Coordinator), t.TransactionalID, fmt.Sprint(t.ProducerID), fmt.Sprint(t.ProducerEpoch), t.State,
				fmt.Sprint(t.TimeoutMs), orNone(t.StartTime), orNone(t.Duration), joinPartitions(t.Partitions, ","),
			}
		})
	})
}

// withListHint adds to an error of an unknown transactional id where to find others.
func withListHint(err error) error {
	if errors.Is(err, kerr.TransactionalIDNotFound) {
		return fmt.Errorf("%w; `cairn transactions list` shows those that there are", err)
	}
	return err
}

// orNone is how Kafka's tool prints a number that may not be there.
func orNone(n *int64) string {
	if n == nil {
		return "None"
	}
	return strconv.FormatInt(*n, 10)
}

func describeTransactions(ctx context.Context, cl *kgo.Client, now time.Time, ids ...string) ([]describedTransaction, error) {
	described, err := kadm.NewClient(cl).DescribeTransactions(ctx, ids...)
	if err != nil {
		return nil, err
	}
	list := []describedTransaction{}
	for _, t := range described.Sorted() {
		if t.Err != nil {
			return nil, fmt.Errorf("transactional id %q: %w", t.TxnID, t.Err)
		}
		d := describedTransaction{
			Coordinator: t.Coordinator, TransactionalID: t.TxnID, ProducerID: t.ProducerID, ProducerEpoch: t.ProducerEpoch,
			State: t.State, TimeoutMs: t.TimeoutMillis, Partitions: []topicPartition{},
		}
		if t.StartTimestamp >= 0 {
			began, lasts := t.StartTimestamp, now.UnixMilli()-t.StartTimestamp
			d.StartTime, d.Duration = &began, &lasts
		}
		for topic, parts := range t.Topics {
			for p := range parts {
				d.Partitions = append(d.Partitions, topicPartition{topic, p})
			}
		}
		slices.SortFunc(d.Partitions, comparePartitions)
		list = append(list, d)
	}
	return list, nil
}

func comparePartitions(a, b topicPartition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// ForceTerminateTransaction aborts the transaction of a transactional id and fences its producer. An id that nobody has used is made by it, as by
// Kafka's tool, and with a warning, as it may be a typing error.
func ForceTerminateTransaction(ctx context.Context, conn Connection, id string, out Output) error {
	return withAdmin(ctx, conn, out, func(ctx context.Context, cl *kgo.Client) error {
		_, err := describeTransactions(ctx, cl, time.Now(), id)
		unused := errors.Is(err, kerr.TransactionalIDNotFound)
		if err != nil && !unused {
			return err
		}
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = &id, -1, -1
		req.TransactionTimeoutMillis = 1 // nobody is going to use what it begins
		for {
			resp, err := req.RequestWith(ctx, cl)
			if err == nil {
				err = kerr.ErrorForCode(resp.ErrorCode)
			}
			if !errors.Is(err, kerr.ConcurrentTransactions) {
				if err != nil {
					return fmt.Errorf("transactional id %q: %w", id, err)
				}
				break
			}
			select { // the transaction that was open is being aborted
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("transactional id %q: %w: %w", id, err, ctx.Err())
			}
		}
		if unused {
			out.warn("Transactional id '%s' did not exist; it is created; `cairn transactions list` shows those that there are", id)
		} else {
			out.note("No transaction of %s is open any more, and its producer is fenced.", id)
		}
		if out.JSON {
			return out.writeJSON(map[string]string{"transactionalId": id})
		}
		return nil
	})
}
