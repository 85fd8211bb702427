package broker

import (
	"context"
	"fmt"
	"time"

	"cairn/broker/controller"
	"cairn/engine"
	"cairn/internal/clock"
	"cairn/internal/ids"
	"cairn/wire/private"

	"github.com/twmb/franz-go/pkg/kerr"
)

// quarantineBytesMax bounds an answer, so that the memory it takes is small beside that of produce requests.
const quarantineBytesMax = 8 << 20

// handleReadQuarantine returns batches that are kept in quarantine here.
func handleReadQuarantine(b *Broker, r *request) {
	q := r.msg.(*private.QuarantineRequest).Body
	resp := &private.QuarantineResponse{}
	log, bad := b.storedLog(q.Topic, q.Partition)
	if bad.Code != 0 {
		resp.Body.Status = bad
		r.reply(resp)
		return
	}
	limit, size := min(max(q.MaxBytes, 0), quarantineBytesMax), 0
	err := log.ScanQuarantineFrom(engine.QuarantinePos{LeaderEpoch: q.From.LeaderEpoch, Base: q.From.Offset}, func(x engine.Quarantined) bool {
		if len(resp.Body.Batches) > 0 && size+len(x.Batch) > limit {
			resp.Body.More = true
			return false
		}
		size += len(x.Batch)
		resp.Body.Batches = append(resp.Body.Batches, private.QuarantinedBatch{
			Quarantine: private.Quarantine{LeaderEpoch: x.LeaderEpoch, Offset: x.Base}, AtMs: x.AtMs, Batch: append([]byte{}, x.Batch...),
		})
		return true
	})
	if err != nil {
		resp.Body = private.QuarantineAnswer{Status: storageStatus(err)}
	}
	r.reply(resp)
}

// handleRemoveQuarantine deletes batches from quarantine, as an operator wants.
func handleRemoveQuarantine(b *Broker, r *request) {
	q := r.msg.(*private.RemovalRequest).Body
	resp := &private.RemovalResponse{}
	log, bad := b.storedLog(q.Topic, q.Partition)
	if bad.Code == 0 {
		list, err := log.QuarantineUpTo(engine.QuarantinePos{LeaderEpoch: q.UpTo.LeaderEpoch, Base: q.UpTo.Offset})
		if err == nil {
			err = b.dropQuarantined(r.conn.context, list)
		}
		if err != nil {
			bad = storageStatus(err)
		} else {
			for _, x := range list {
				resp.Body.Batches++
				resp.Body.Bytes += int64(x.Bytes)
			}
		}
	}
	resp.Body.Status = bad
	r.reply(resp)
}

// handleNoteRecovered has the losses say that somebody has produced the records to a topic.
func handleNoteRecovered(b *Broker, r *request) {
	q := r.msg.(*private.RecoveredRequest).Body
	resp := &private.RecoveredResponse{}
	p, ok := b.images.Image().Partition(q.Topic, q.Partition)
	if !ok {
		resp.Body.Status = private.Status{Code: kerr.UnknownTopicOrPartition.Code, Message: "There is no such partition."}
		r.reply(resp)
		return
	}
	note := controller.RecoveredRanges{Partition: p.ID, To: q.To, AtMs: clock.Now().UnixMilli()}
	for _, x := range q.Ranges {
		note.Ranges = append(note.Ranges, controller.LostRange{
			LeaderEpoch: ids.LeaderEpoch(x.LeaderEpoch), From: ids.Offset(x.From), To: ids.Offset(x.To),
		})
	}
	ctx, cancel := context.WithTimeout(r.conn.context, dropWithin)
	defer cancel()
	items, err := b.ctl.ReplicaCommand(ctx, controller.NoteRecovered{Partitions: []controller.RecoveredRanges{note}})
	switch {
	case err != nil:
		resp.Body.Status = storageStatus(err)
	case len(items) != 1 || items[0].Code != 0:
		resp.Body.Status = private.Status{Code: kerr.InvalidRequest.Code, Message: fmt.Sprint(items)}
	}
	r.reply(resp)
}

// dropWithin bounds the wait for the controller before batches are deleted from quarantine, or noted as recovered.
const dropWithin = 10 * time.Second

// dropQuarantined deletes batches from quarantine, once the losses say that nothing will be left of them.
func (b *Broker) dropQuarantined(ctx context.Context, list []engine.QuarantineEntry) error {
	if len(list) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, dropWithin)
	defer cancel()
	cmd := controller.DropQuarantined{
		Broker: b.nodeID, Epoch: b.ctl.Registration().BrokerEpoch, Partitions: droppedRanges(list, clock.Now().UnixMilli()),
	}
	items, err := b.ctl.ReplicaCommand(ctx, cmd)
	if err != nil {
		return err
	}
	for i, r := range items {
		if r.Code != 0 && r.Code != kerr.UnknownTopicOrPartition.Code { // of a deleted topic nothing is lost
			return fmt.Errorf("partition %d: %w: %s", cmd.Partitions[i].Partition, kerr.ErrorForCode(r.Code), r.Message)
		}
	}
	return b.engine.RemoveQuarantined(list)
}

// droppedRanges are the offsets of the batches, by partition, neighbours joined.
func droppedRanges(list []engine.QuarantineEntry, atMs int64) []controller.DroppedRanges {
	var out []controller.DroppedRanges
	at := map[ids.PartitionID]int{}
	for _, x := range list {
		i, ok := at[x.Partition]
		if !ok {
			i = len(out)
			at[x.Partition] = i
			out = append(out, controller.DroppedRanges{Partition: x.Partition, AtMs: atMs})
		}
		d := &out[i]
		if n := len(d.Ranges); n > 0 && d.Ranges[n-1].LeaderEpoch == x.LeaderEpoch && d.Ranges[n-1].To == x.Base {
			d.Ranges[n-1].To = x.Next
			continue
		}
		d.Ranges = append(d.Ranges, controller.LostRange{LeaderEpoch: x.LeaderEpoch, From: x.Base, To: x.Next})
	}
	return out
}

// storedLog finds what is stored here of a partition, also while its replica does not run.
func (b *Broker) storedLog(topic string, partition int32) (*engine.Log, private.Status) {
	p, ok := b.images.Image().Partition(topic, partition)
	if !ok {
		return nil, private.Status{Code: kerr.UnknownTopicOrPartition.Code, Message: "There is no such partition."}
	}
	log, err := b.engine.OpenLog(p.ID)
	if err != nil {
		return nil, storageStatus(err)
	}
	return log, private.Status{}
}

func storageStatus(err error) private.Status {
	return private.Status{Code: errorCode(err), Message: err.Error()}
}
