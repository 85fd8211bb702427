package controller

import (
	"context"

	"cairn/internal/clock"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// producerIDBlock is how many producer ids a broker gets at a time, as in Kafka.
const producerIDBlock = 1000

// registerBroker answers BrokerRegistration. The answer goes out after the registration is applied here and the broker's
// metadata replica is a member of the metadata group.
func (cc *Conn) registerBroker(ctx context.Context, req *kmsg.BrokerRegistrationRequest) *kmsg.BrokerRegistrationResponse {
	resp := req.ResponseKind().(*kmsg.BrokerRegistrationResponse)
	resp.BrokerEpoch = -1
	c := cc.c
	one := c.registrationSlot(ids.NodeID(req.BrokerID))
	if err := one.acquire(ctx); err != nil {
		resp.ErrorCode = kerr.RequestTimedOut.Code
		return resp
	}
	defer one.release()
	if resp.ErrorCode = c.checkRegistration(req); resp.ErrorCode != 0 {
		return resp
	}
	cmd := registration(req)
	cmd.Voter = c.isVoter(cmd.ID)
	res, err := c.propose(ctx, cmd)
	if err == nil && !cmd.Voter {
		err = c.joinMetadata(ctx, cmd.ID, res)
	}
	if err != nil {
		c.log.Warn("broker registration failed", zap.Int32("broker", req.BrokerID), zap.Error(err))
		resp.ErrorCode, _ = errorCode(err)
		return resp
	}
	c.touch(cc, cmd.ID, res.BrokerEpoch)
	c.log.Info("broker registered", zap.Int32("broker", req.BrokerID), zap.Int64("brokerEpoch", res.BrokerEpoch))
	resp.BrokerEpoch = res.BrokerEpoch
	resp.UnknownTags.Set(tagClusterID, []byte(res.ClusterID))
	setTagUint(&resp.UnknownTags, tagMetadataReplica, uint64(res.MetadataReplica))
	setTagUint(&resp.UnknownTags, tagMetadataEnd, c.store.Image().Index)
	return resp
}

// registrationSlot excludes other registrations of the same broker: each of them changes the metadata group in two steps.
func (c *Controller) registrationSlot(node ids.NodeID) slot {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.registers[node]
	if s == nil {
		s = newSlot()
		c.registers[node] = s
	}
	return s
}

func (c *Controller) isVoter(node ids.NodeID) bool {
	_, ok := VoterMembers(c.cfg.Voters)[VoterReplica(node)]
	return ok
}

// checkRegistration returns the code that refuses the registration, 0 if none does. Another process under the same id is
// refused while the registered one may still be alive; once that one's connections are gone, or its session is over, the
// new one replaces it. A process on the same data directory replaces it at once: it holds the directory's lock, so the other
// one has ended; but not one that opened it earlier, which has ended itself, and whose request the network was late with.
func (c *Controller) checkRegistration(req *kmsg.BrokerRegistrationRequest) int16 {
	if code, refused := c.notActive(); refused {
		return code
	}
	img := c.store.Image()
	switch {
	case req.BrokerID < 0 || len(req.Listeners) == 0:
		return kerr.InvalidRegistration.Code
	case req.ClusterID != "" && req.ClusterID != img.ClusterID:
		return kerr.InconsistentClusterID.Code
	}
	old := img.Brokers[ids.NodeID(req.BrokerID)]
	if old == nil || old.Incarnation == ids.UUID(req.IncarnationID) {
		return 0
	}
	if !openedEarlier(old, req) && (old.Fenced || old.ShuttingDown || sameDirectory(old, req)) {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[old.ID]
	if s != nil && s.epoch == old.Epoch && s.alive(c.cfg, clock.Now()) {
		return kerr.DuplicateBrokerRegistration.Code
	}
	return 0
}

func sameDirectory(old *Broker, req *kmsg.BrokerRegistrationRequest) bool {
	return !old.Directory.IsZero() && len(req.LogDirs) > 0 && old.Directory == ids.UUID(req.LogDirs[0])
}

// openedEarlier reports whether a process asks that had the data directory before the registered one. False where that is not known, as after a
// restart of the machine.
func openedEarlier(old *Broker, req *kmsg.BrokerRegistrationRequest) bool {
	opened, sameBoot := tagUint(&req.UnknownTags, tagOpenedNs), old.BootID != "" && old.BootID == tagText(&req.UnknownTags, tagBootID)
	return sameDirectory(old, req) && sameBoot && opened != 0 && opened < old.OpenedNs
}

func registration(req *kmsg.BrokerRegistrationRequest) RegisterBroker {
	cmd := RegisterBroker{
		ID: ids.NodeID(req.BrokerID), Incarnation: req.IncarnationID, Rack: req.Rack,
		LogFlush: tagText(&req.UnknownTags, tagLogFlush), BootID: tagText(&req.UnknownTags, tagBootID),
		OpenedNs: tagUint(&req.UnknownTags, tagOpenedNs), PreviousEpoch: max(req.PreviousBrokerEpoch, 0),
	}
	if len(req.LogDirs) > 0 {
		cmd.Directory = req.LogDirs[0]
	}
	for _, l := range req.Listeners {
		cmd.Endpoints = append(cmd.Endpoints, Endpoint{l.Name, l.Host, l.Port, l.SecurityProtocol})
	}
	return cmd
}

// joinMetadata makes the broker's replica a non-voting member of the metadata group, in place of its former ones.
func (c *Controller) joinMetadata(ctx context.Context, node ids.NodeID, res Result) error {
	c.mu.Lock()
	group := c.group
	c.mu.Unlock()
	for _, r := range res.FormerReplicas {
		if err := group.Remove(ctx, r); err != nil {
			return err
		}
	}
	return group.AddNonVoting(ctx, res.MetadataReplica, node)
}

// heartbeat answers BrokerHeartbeat: it prolongs the session, and fences or unfences the broker or starts its controlled
// shutdown, as it wants.
func (cc *Conn) heartbeat(ctx context.Context, req *kmsg.BrokerHeartbeatRequest) *kmsg.BrokerHeartbeatResponse {
	resp := req.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
	resp.IsFenced = true
	c, id := cc.c, ids.NodeID(req.BrokerID)
	if code, refused := c.notActive(); refused {
		resp.ErrorCode = code
		return resp
	}
	if bad := c.store.Image().checkEpoch(id, req.BrokerEpoch); bad.Code != 0 {
		resp.ErrorCode = bad.Code
		return resp
	}
	c.touch(cc, id, req.BrokerEpoch)
	if err := c.noteHeartbeat(req, resp); err != nil {
		c.log.Warn("log ends of a heartbeat cannot be read", zap.Int32("broker", req.BrokerID), zap.Error(err))
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	resp.IsCaughtUp = req.CurrentMetadataOffset >= req.BrokerEpoch
	if action, due := wanted(c.store.Image().Brokers[id], req); due {
		res, err := c.propose(ctx, ChangeBrokers{[]BrokerChange{{id, req.BrokerEpoch, action}}})
		if err == nil && len(res.Items) == 1 {
			resp.ErrorCode = res.Items[0].Code
		}
		if err != nil {
			resp.ErrorCode, _ = errorCode(err)
		}
		if resp.ErrorCode != 0 {
			return resp
		}
	}
	img := c.store.Image()
	b := img.Brokers[id]
	if b == nil || b.Epoch != req.BrokerEpoch {
		resp.ErrorCode = kerr.StaleBrokerEpoch.Code
		return resp
	}
	if resp.IsFenced = b.Fenced; !b.Fenced {
		c.lease(id, req.BrokerEpoch)
	}
	resp.ShouldShutdown = b.ShuttingDown && !img.leadsForOthers(id)
	return resp
}

// wanted returns the change of standing that the heartbeat asks for, if any.
func wanted(b *Broker, req *kmsg.BrokerHeartbeatRequest) (BrokerAction, bool) {
	switch {
	case b == nil:
		return "", false
	case req.WantShutdown:
		return Shutdown, !b.ShuttingDown
	case req.WantFence:
		return Fence, !b.Fenced
	default:
		return Unfence, b.Fenced && !b.ShuttingDown && req.CurrentMetadataOffset >= max(b.Epoch, int64(b.FencedAt))
	}
}

// leadsForOthers reports whether the broker leads a partition that another live broker could lead.
func (img *Image) leadsForOthers(node ids.NodeID) bool {
	for _, t := range img.Topics {
		for _, p := range t.Partitions {
			if p.Leader != node {
				continue
			}
			for _, n := range p.Replicas {
				if n != node && img.Usable(n) && !img.Brokers[n].ShuttingDown {
					return true
				}
			}
		}
	}
	return false
}

func (c *Controller) allocateProducerIDs(ctx context.Context, req *kmsg.AllocateProducerIDsRequest) *kmsg.AllocateProducerIDsResponse {
	resp := req.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
	res, err := c.propose(ctx, AllocateProducerIDs{ids.NodeID(req.BrokerID), req.BrokerEpoch, producerIDBlock})
	if err != nil {
		resp.ErrorCode, _ = errorCode(err)
		return resp
	}
	if resp.ErrorCode = res.Code; res.Code == 0 {
		resp.ProducerIDStart, resp.ProducerIDLen = res.ProducerID, producerIDBlock
	}
	return resp
}

func (c *Controller) registerLeaders(ctx context.Context, req *RegisterLeadersRequest) *RegisterLeadersResponse {
	resp := &RegisterLeadersResponse{}
	res, err := c.propose(ctx, req.RegisterLeaders)
	if err != nil {
		resp.Code, resp.Message = errorCode(err)
		return resp
	}
	resp.Code, resp.Message, resp.Items = res.Code, res.Message, res.Items
	return resp
}
