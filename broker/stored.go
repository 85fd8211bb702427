package broker

import (
	"encoding/json"

	"cairn/engine"
	"cairn/wire/private"

	"github.com/twmb/franz-go/pkg/kerr"
)

// raftEntriesMax bounds an answer: an entry takes a few hundred bytes.
const raftEntriesMax = 10_000

// handleReadRaftLog tells what is saved of a partition's Raft log.
func handleReadRaftLog(b *Broker, r *request) {
	q := r.msg.(*private.RaftLogRequest).Body
	resp := &private.RaftLogResponse{}
	log, bad := b.storedLog(q.Topic, q.Partition)
	if bad.Code != 0 {
		resp.Body.Status = bad
		r.reply(resp)
		return
	}
	resp.Body.State = mustJSON(log.ViewRaft())
	limit := min(max(q.MaxEntries, 1), raftEntriesMax)
	err := log.ScanEntryViews(q.From, func(e engine.EntryView) bool {
		if len(resp.Body.Entries) == limit {
			resp.Body.More = true
			return false
		}
		resp.Body.Entries = append(resp.Body.Entries, mustJSON(e))
		return true
	})
	if err != nil {
		resp.Body = private.RaftLogAnswer{Status: storageStatus(err)}
	}
	r.reply(resp)
}

// handleInspect reads all that is stored of a partition. It ends with the connection.
func handleInspect(b *Broker, r *request) {
	q := r.msg.(*private.InspectionRequest).Body
	resp := &private.InspectionResponse{}
	log, bad := b.storedLog(q.Topic, q.Partition)
	switch {
	case bad.Code != 0:
		resp.Body.Status = bad
	case !b.inspecting.TryLock():
		resp.Body.Status = private.Status{Code: kerr.ThrottlingQuotaExceeded.Code, Message: "Another partition is being verified on this broker; try again when that has ended."}
	default:
		found, err := b.engine.Inspect(r.conn.context, log.Info().ID)
		b.inspecting.Unlock()
		if err != nil {
			resp.Body.Status = storageStatus(err)
			break
		}
		resp.Body.Found = mustJSON(found)
	}
	r.reply(resp)
}

// mustJSON encodes structs of plain values.
func mustJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return b
}
