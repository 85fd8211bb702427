package group

import (
	"fmt"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group/records"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumerGroup is a group of the consumer protocol (KIP-848).
//
// Invariant: there is none yet, since its records are not understood; what follows is where it meets the rest.
type consumerGroup struct{}

func (m *Machine) replayConsumer(kind int16, _ coordinator.Record) error {
	return fmt.Errorf("%w: kind %d", records.ErrUnknown, kind)
}

func (m *Machine) electedConsumer(*group, time.Time, *coordinator.Effects) {}
func (m *Machine) resignedConsumer(*group)                                 {}

func (m *Machine) expireConsumer(*group, time.Time, *coordinator.Effects) (next time.Time) {
	return time.Time{}
}

// dropConsumer turns an empty consumer group into nothing, so that a classic one can take its place.
func (m *Machine) dropConsumer(*group, *coordinator.Effects) {}

func (m *Machine) consumerJoin(_ *group, _ Client, req *kmsg.JoinGroupRequest, _ time.Time, fx *coordinator.Effects, reply Reply[*kmsg.JoinGroupResponse]) {
	answer(fx, reply, joinRefusal(kerr.InconsistentGroupProtocol.Code, req.MemberID))
}

func (m *Machine) consumerSync(_ *group, _ Client, _ *kmsg.SyncGroupRequest, _ time.Time, fx *coordinator.Effects, reply Reply[*kmsg.SyncGroupResponse]) {
	answer(fx, reply, syncRefusal(kerr.UnknownMemberID.Code))
}

func (m *Machine) consumerClassicHeartbeat(_ *group, _ Client, _ *kmsg.HeartbeatRequest, _ time.Time, fx *coordinator.Effects, reply Reply[*kmsg.HeartbeatResponse]) {
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.ErrorCode = kerr.UnknownMemberID.Code
	answer(fx, reply, resp)
}

func (m *Machine) consumerClassicLeave(_ *group, _ Client, _ *kmsg.LeaveGroupRequest, _ time.Time, fx *coordinator.Effects, reply Reply[*kmsg.LeaveGroupResponse]) {
	resp := kmsg.NewPtrLeaveGroupResponse()
	resp.ErrorCode = kerr.UnknownMemberID.Code
	answer(fx, reply, resp)
}

func (c *consumerGroup) checkCommit(string, *string, int32, int16, bool) (partitionCheck, *Error) {
	return nil, refusal(kerr.UnknownMemberID)
}

func (c *consumerGroup) checkFetch(*string, int32) *Error { return refusal(kerr.UnknownMemberID) }
func (c *consumerGroup) subscribed(string) bool           { return false }
func (c *consumerGroup) state() string                    { return stateDead }
func (c *consumerGroup) empty() bool                      { return true }

// tombstones appends what deletes the group and returns with how many records.
func (c *consumerGroup) tombstones(string, *coordinator.Effects) int { return 0 }
