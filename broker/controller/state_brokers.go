package controller

import (
	"slices"

	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
)

// registerBroker adds the broker, fenced. A repeated registration of the same process keeps its epoch and its standing:
// the first answer was lost.
func (e *edit) registerBroker(c RegisterBroker) Result {
	old := e.img.Brokers[c.ID]
	b := &Broker{
		ID: c.ID, Epoch: int64(e.img.Index), Incarnation: c.Incarnation, Directory: c.Directory, Endpoints: c.Endpoints,
		Rack: c.Rack, Fenced: true, LogFlush: c.LogFlush, BootID: c.BootID, OpenedNs: c.OpenedNs,
	}
	res := Result{ClusterID: e.img.ClusterID}
	switch {
	case c.Voter:
		b.MetadataReplica = VoterReplica(c.ID)
	case old != nil && old.Directory == c.Directory:
		b.MetadataReplica, b.FormerReplicas = old.MetadataReplica, old.FormerReplicas
	default:
		b.MetadataReplica = e.nextReplica()
		if old != nil {
			b.FormerReplicas = append(slices.Clone(old.FormerReplicas), old.MetadataReplica)
		}
	}
	if old != nil && old.Incarnation == c.Incarnation {
		b.Epoch, b.Fenced, b.ShuttingDown, b.FencedAt = old.Epoch, old.Fenced, old.ShuttingDown, old.FencedAt
	}
	e.setBroker(b)
	if old != nil {
		e.restarted(old, b, c.PreviousEpoch == old.Epoch)
	}
	res.BrokerEpoch, res.MetadataReplica, res.FormerReplicas = b.Epoch, b.MetadataReplica, b.FormerReplicas
	return res
}

func (e *edit) changeBroker(c BrokerChange) ItemResult {
	if bad := e.img.checkEpoch(c.ID, c.Epoch); bad.Code != 0 {
		return bad
	}
	b := *e.img.Brokers[c.ID]
	switch c.Action {
	case Fence:
		if !b.Fenced {
			b.FencedAt = e.img.Index
		}
		b.Fenced = true
	case Unfence:
		if b.ShuttingDown {
			return refuseItem(kerr.InvalidRequest, "broker %d is shutting down", c.ID)
		}
		b.Fenced = false
	case Shutdown:
		b.ShuttingDown = true
	default:
		return refuseItem(kerr.InvalidRequest, "broker action %q", c.Action)
	}
	e.setBroker(&b)
	if c.Action != Unfence {
		e.outOfSync(c.ID, c.Action)
	}
	return ItemResult{}
}

func (e *edit) nextReplica() ids.ReplicaID {
	r := e.img.NextReplica
	e.img.NextReplica++
	return r
}
