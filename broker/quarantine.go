package broker

import (
	"cairn/engine"
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
	if bad.Code != 0 {
		resp.Body.Status = bad
		r.reply(resp)
		return
	}
	removed, err := log.RemoveQuarantine(engine.QuarantinePos{LeaderEpoch: q.UpTo.LeaderEpoch, Base: q.UpTo.Offset})
	if err != nil {
		resp.Body.Status = storageStatus(err)
	}
	for _, x := range removed {
		resp.Body.Batches++
		resp.Body.Bytes += int64(x.Bytes)
	}
	r.reply(resp)
}

// storedLog finds what is stored here of a partition, also while its replica does not run.
func (b *Broker) storedLog(topic string, partition int32) (*engine.Log, private.Status) {
	p, ok := b.images.Image().Partition(topic, partition)
	if !ok {
		return nil, private.Status{Code: kerr.UnknownTopicOrPartition.Code, Message: "There is no such partition."}
	}
	return b.openStored(p.ID)
}

func (b *Broker) openStored(id ids.PartitionID) (*engine.Log, private.Status) {
	log, err := b.engine.OpenLog(id)
	if err != nil {
		return nil, storageStatus(err)
	}
	return log, private.Status{}
}

func storageStatus(err error) private.Status {
	return private.Status{Code: errorCode(err), Message: err.Error()}
}
