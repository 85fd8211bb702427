package broker

import (
	"context"
	"fmt"
	"time"

	"cairn/broker/controller"
	"cairn/internal/ids"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

const (
	// forwardTimeout bounds the wait for the controller where the request names no timeout of its own.
	forwardTimeout = 30 * time.Second
	// settleTimeout bounds the wait for created or deleted topics to show on this broker. Clients ask for them next, and
	// often the broker that answered.
	settleTimeout = time.Second
)

// handleForward has the active controller decide, and waits until this broker's own metadata shows the outcome.
func handleForward(b *Broker, r *request) {
	resp := b.forward(r.conn.context, r.msg)
	switch resp := resp.(type) {
	case *kmsg.CreateTopicsResponse:
		if !r.msg.(*kmsg.CreateTopicsRequest).ValidateOnly {
			b.awaitTopics(r.conn.context, succeeded(resp))
		}
	case *kmsg.DeleteTopicsResponse:
		b.awaitDeleted(r.conn.context, resp)
	}
	r.reply(resp)
}

// forward sends a request to the active controller and returns its answer, or one that says of each item that the
// outcome is not known. It never returns nil.
func (b *Broker) forward(ctx context.Context, req kmsg.Request) kmsg.Response {
	timeout := forwardTimeout
	if t, ok := req.(kmsg.TimeoutRequest); ok && t.Timeout() > 0 {
		timeout = min(timeout, time.Duration(t.Timeout())*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := b.ctl.Forward(ctx, req)
	if err != nil {
		b.noise.warn(b.log, "request to the controller failed", zap.String("api", kmsg.NameForKey(req.Key())), zap.Error(err))
		return unknownOutcome(req, err)
	}
	return resp
}

// unknownOutcome answers every item of req with REQUEST_TIMED_OUT: it may have been done.
func unknownOutcome(req kmsg.Request, err error) kmsg.Response {
	code, message := kerr.RequestTimedOut.Code, kmsg.StringPtr(fmt.Sprintf("No answer from the controller: %v", err))
	switch req := req.(type) {
	case *kmsg.CreateTopicsRequest:
		resp := kmsg.NewPtrCreateTopicsResponse()
		for _, t := range req.Topics {
			item := kmsg.NewCreateTopicsResponseTopic()
			item.Topic, item.ErrorCode, item.ErrorMessage = t.Topic, code, message
			resp.Topics = append(resp.Topics, item)
		}
		return resp
	case *kmsg.DeleteTopicsRequest:
		return unknownDeletes(req, code, message)
	case *kmsg.CreatePartitionsRequest:
		resp := kmsg.NewPtrCreatePartitionsResponse()
		for _, t := range req.Topics {
			item := kmsg.NewCreatePartitionsResponseTopic()
			item.Topic, item.ErrorCode, item.ErrorMessage = t.Topic, code, message
			resp.Topics = append(resp.Topics, item)
		}
		return resp
	case *kmsg.AlterConfigsRequest:
		resp := kmsg.NewPtrAlterConfigsResponse()
		for _, t := range req.Resources {
			item := kmsg.NewAlterConfigsResponseResource()
			item.ResourceType, item.ResourceName, item.ErrorCode, item.ErrorMessage = t.ResourceType, t.ResourceName, code, message
			resp.Resources = append(resp.Resources, item)
		}
		return resp
	case *kmsg.IncrementalAlterConfigsRequest:
		resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
		for _, t := range req.Resources {
			item := kmsg.NewIncrementalAlterConfigsResponseResource()
			item.ResourceType, item.ResourceName, item.ErrorCode, item.ErrorMessage = t.ResourceType, t.ResourceName, code, message
			resp.Resources = append(resp.Resources, item)
		}
		return resp
	default:
		return unknownWhole(req, code, message)
	}
}

// unknownWhole is unknownOutcome for requests with an error of their own.
func unknownWhole(req kmsg.Request, code int16, message *string) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.AlterPartitionAssignmentsRequest:
		resp := kmsg.NewPtrAlterPartitionAssignmentsResponse()
		resp.ErrorCode, resp.ErrorMessage = code, message
		return resp
	case *kmsg.UpdateFeaturesRequest:
		resp := kmsg.NewPtrUpdateFeaturesResponse()
		resp.ErrorCode, resp.ErrorMessage = code, message
		return resp
	case *kmsg.ListPartitionReassignmentsRequest:
		resp := kmsg.NewPtrListPartitionReassignmentsResponse()
		resp.ErrorCode, resp.ErrorMessage = code, message
		return resp
	case *kmsg.DescribeQuorumRequest:
		resp := kmsg.NewPtrDescribeQuorumResponse()
		resp.ErrorCode, resp.ErrorMessage = code, message
		return resp
	default:
		panic(fmt.Sprintf("BUG: %T is not forwarded", req))
	}
}

func unknownDeletes(req *kmsg.DeleteTopicsRequest, code int16, message *string) *kmsg.DeleteTopicsResponse {
	resp := kmsg.NewPtrDeleteTopicsResponse()
	add := func(name *string, id [16]byte) {
		item := kmsg.NewDeleteTopicsResponseTopic()
		item.Topic, item.TopicID, item.ErrorCode, item.ErrorMessage = name, id, code, message
		resp.Topics = append(resp.Topics, item)
	}
	for _, name := range req.TopicNames {
		add(&name, [16]byte{})
	}
	for _, t := range req.Topics {
		add(t.Topic, t.TopicID)
	}
	return resp
}

func succeeded(resp *kmsg.CreateTopicsResponse) []string {
	var names []string
	for _, t := range resp.Topics {
		if t.ErrorCode == 0 {
			names = append(names, t.Topic)
		}
	}
	return names
}

// awaitTopics waits until the topics are in this broker's metadata with a leader for each partition, for a moment.
func (b *Broker) awaitTopics(ctx context.Context, names []string) {
	b.awaitImage(ctx, func(img *controller.Image) bool {
		for _, name := range names {
			t := img.Topics[name]
			if t == nil {
				return false
			}
			for _, p := range t.Partitions {
				if img.Leader(p) == ids.NoNode {
					return false
				}
			}
		}
		return true
	})
}

// awaitDeleted waits until the deleted topics are gone from this broker's metadata, for a moment.
func (b *Broker) awaitDeleted(ctx context.Context, resp *kmsg.DeleteTopicsResponse) {
	deleted := map[string]ids.UUID{}
	img := b.images.Image()
	for _, t := range resp.Topics {
		if t.ErrorCode == 0 && t.Topic != nil && img.Topics[*t.Topic] != nil {
			deleted[*t.Topic] = img.Topics[*t.Topic].ID
		}
	}
	b.awaitImage(ctx, func(img *controller.Image) bool {
		for _, id := range deleted {
			if img.TopicsByID[id] != nil {
				return false
			}
		}
		return true
	})
}

// awaitImage waits until the metadata satisfies done, ctx ends, or settleTimeout has passed.
func (b *Broker) awaitImage(ctx context.Context, done func(*controller.Image) bool) {
	if done(b.images.Image()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	_ = awaitImage(ctx, b.images, done)
}

// awaitImage waits until the metadata satisfies done, or ctx ends.
func awaitImage(ctx context.Context, images *controller.Store, done func(*controller.Image) bool) error {
	changed, stop := images.Watch()
	defer stop()
	for !done(images.Image()) {
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
