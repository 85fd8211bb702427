package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// lightMember is a member of a classic group on a connection of its own, which does no more than it must: ten thousand of them fit into
// one process.
type lightMember struct {
	crowd   *crowd
	group   string
	address string
	delay   time.Duration // so that not all come at once

	conn       net.Conn
	in         *bufio.Reader
	sent       int32
	id         string
	generation int32
}

func (m *lightMember) run(ctx context.Context) error {
	if !sleep(ctx, m.delay) {
		return nil
	}
	for {
		err := m.session(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, kerr.UnknownMemberID): // the coordinator died before it saved the group
			m.id = ""
		case !errors.Is(err, kerr.NotCoordinator) && !errors.Is(err, kerr.CoordinatorLoadInProgress) && !errors.Is(err, kerr.CoordinatorNotAvailable):
			return err
		}
		found, err := coordinators(ctx, m.crowd.cluster, []string{m.group}) // its partition has moved
		if err != nil {
			return err
		}
		m.address = found[m.group]
	}
}

// session is a member's life on one connection.
func (m *lightMember) session(ctx context.Context) (err error) {
	if m.conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", m.address); err != nil {
		return err
	}
	defer func() { _ = m.conn.Close() }() // nothing is left to be sent
	stop := context.AfterFunc(ctx, func() { _ = m.conn.Close() })
	defer stop()
	m.in = bufio.NewReaderSize(m.conn, 512)
	for {
		again, err := m.join()
		if err != nil {
			return err
		}
		if again {
			continue
		}
		if err := m.heartbeats(ctx); err != nil {
			return err
		}
	}
}

// ask sends a request of a version without tagged fields and reads the answer.
func (m *lightMember) ask(req kmsg.Request) (kmsg.Response, error) {
	m.sent++
	if _, err := m.conn.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("light")).AppendRequest(nil, req, m.sent)); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(m.in, head[:]); err != nil {
		return nil, err
	}
	body := make([]byte, int(binary.BigEndian.Uint32(head[:]))-4)
	if _, err := io.ReadFull(m.in, body); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	return resp, resp.ReadFrom(body)
}

// join goes through a rebalance. again: another one has begun.
func (m *lightMember) join() (again bool, err error) {
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Topics = []string{groupsTopic}
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.ProtocolType = 3, m.group, m.id, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 45_000, 300_000
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "range", meta.AppendTo(nil)
	req.Protocols = append(req.Protocols, protocol)
	answer, err := m.ask(req)
	if err != nil {
		return false, err
	}
	joined := answer.(*kmsg.JoinGroupResponse)
	if err := kerr.ErrorForCode(joined.ErrorCode); err != nil {
		return false, fmt.Errorf("joining: %w", err)
	}
	m.id, m.generation = joined.MemberID, joined.Generation
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.MemberID, sync.Generation = 3, m.group, m.id, m.generation
	for i, other := range joined.Members {
		var a kmsg.ConsumerMemberAssignment
		a.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: groupsTopic, Partitions: []int32{int32(i)}}}
		part := kmsg.NewSyncGroupRequestGroupAssignment()
		part.MemberID, part.MemberAssignment = other.MemberID, a.AppendTo(nil)
		sync.GroupAssignment = append(sync.GroupAssignment, part)
	}
	answer, err = m.ask(sync)
	if err != nil {
		return false, err
	}
	switch err := kerr.ErrorForCode(answer.(*kmsg.SyncGroupResponse).ErrorCode); err {
	case nil:
		return false, m.commit(len(joined.Members))
	case kerr.RebalanceInProgress:
		return true, nil
	default:
		return false, fmt.Errorf("syncing: %w", err)
	}
}

// commit has the group's leader, which alone knows the members, commit an offset for each partition, so that there is something to describe.
func (m *lightMember) commit(members int) error {
	if members == 0 {
		return nil
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 7, m.group, m.id, m.generation
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = groupsTopic
	for p := range int32(groupMembers) {
		part := kmsg.NewOffsetCommitRequestTopicPartition()
		part.Partition = p
		topic.Partitions = append(topic.Partitions, part)
	}
	req.Topics = append(req.Topics, topic)
	_, err := m.ask(req) // refused when a rebalance has begun: the next one commits again
	return err
}

// heartbeats goes on until a rebalance begins.
func (m *lightMember) heartbeats(ctx context.Context) error {
	for sleep(ctx, groupsHeartbeat) {
		req := kmsg.NewPtrHeartbeatRequest()
		req.Version, req.Group, req.MemberID, req.Generation = 3, m.group, m.id, m.generation
		began := time.Now()
		answer, err := m.ask(req)
		if err != nil {
			return err
		}
		err = kerr.ErrorForCode(answer.(*kmsg.HeartbeatResponse).ErrorCode)
		m.crowd.beat(m, time.Since(began), err == nil)
		switch err {
		case nil:
		case kerr.RebalanceInProgress:
			return nil
		default:
			return fmt.Errorf("heartbeat: %w", err)
		}
	}
	return ctx.Err()
}
