package controller

import (
	"context"
	"encoding/json"
	"fmt"

	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// replicaCommandKey is the API key of what brokers report about their replicas and Kafka has nothing like.
const replicaCommandKey = kmsg.Key(10001)

func replicaCommandAPI() wire.PrivateAPI {
	return wire.PrivateAPI{Key: int16(replicaCommandKey), Name: "ReplicaCommand", New: func() kmsg.Request { return &ReplicaCommandRequest{} }}
}

// ReplicaCommandRequest carries one ChangeVoters, ChangeLosses, RenewReplicas, BeginAnew, DropQuarantined or NoteRecovered from a broker to
// the active controller.
type ReplicaCommandRequest struct {
	Version int16
	Command Command
}

// replicaCommand is the request's body: exactly one of them is set.
type replicaCommand struct {
	Voters *ChangeVoters    `json:"voters,omitempty"`
	Losses *ChangeLosses    `json:"losses,omitempty"`
	Renew  *RenewReplicas   `json:"renew,omitempty"`
	Begin  *BeginAnew       `json:"begin,omitempty"`
	Drop   *DropQuarantined `json:"drop,omitempty"`
	Noted  *NoteRecovered   `json:"recovered,omitempty"`
}

// Key and the methods below implement kmsg.Request.
func (*ReplicaCommandRequest) Key() int16                  { return int16(replicaCommandKey) }
func (*ReplicaCommandRequest) MaxVersion() int16           { return 0 }
func (r *ReplicaCommandRequest) SetVersion(v int16)        { r.Version = v }
func (r *ReplicaCommandRequest) GetVersion() int16         { return r.Version }
func (*ReplicaCommandRequest) IsFlexible() bool            { return true }
func (*ReplicaCommandRequest) ResponseKind() kmsg.Response { return &ReplicaCommandResponse{} }

// AppendTo panics with "BUG:" for any other command.
func (r *ReplicaCommandRequest) AppendTo(dst []byte) []byte {
	var body replicaCommand
	switch c := r.Command.(type) {
	case ChangeVoters:
		body.Voters = &c
	case ChangeLosses:
		body.Losses = &c
	case RenewReplicas:
		body.Renew = &c
	case BeginAnew:
		body.Begin = &c
	case DropQuarantined:
		body.Drop = &c
	case NoteRecovered:
		body.Noted = &c
	default:
		panic(fmt.Sprintf("BUG: %T is not a broker's", c))
	}
	return append(dst, mustMarshal(body)...)
}

func (r *ReplicaCommandRequest) ReadFrom(src []byte) error {
	var body replicaCommand
	if err := strictUnmarshal(src, &body); err != nil {
		return err
	}
	var parts []Command
	if body.Voters != nil {
		parts = append(parts, *body.Voters)
	}
	if body.Losses != nil {
		parts = append(parts, *body.Losses)
	}
	if body.Renew != nil {
		parts = append(parts, *body.Renew)
	}
	if body.Begin != nil {
		parts = append(parts, *body.Begin)
	}
	if body.Drop != nil {
		parts = append(parts, *body.Drop)
	}
	if body.Noted != nil {
		parts = append(parts, *body.Noted)
	}
	if len(parts) != 1 {
		return fmt.Errorf("a replica command of %d parts", len(parts))
	}
	r.Command = parts[0]
	return nil
}

// ReplicaCommandResponse answers it: Code for the whole request, else Items one by one.
type ReplicaCommandResponse struct {
	Version int16
	Code    int16
	Message string
	Items   []ItemResult
}

// Key and the methods below implement kmsg.Response.
func (*ReplicaCommandResponse) Key() int16                { return int16(replicaCommandKey) }
func (*ReplicaCommandResponse) MaxVersion() int16         { return 0 }
func (r *ReplicaCommandResponse) SetVersion(v int16)      { r.Version = v }
func (r *ReplicaCommandResponse) GetVersion() int16       { return r.Version }
func (*ReplicaCommandResponse) IsFlexible() bool          { return true }
func (*ReplicaCommandResponse) RequestKind() kmsg.Request { return &ReplicaCommandRequest{} }
func (r *ReplicaCommandResponse) AppendTo(dst []byte) []byte {
	return append(dst, mustMarshal(Result{Code: r.Code, Message: r.Message, Items: r.Items})...)
}

func (r *ReplicaCommandResponse) ReadFrom(src []byte) error {
	var res Result
	if err := json.Unmarshal(src, &res); err != nil {
		return err
	}
	r.Code, r.Message, r.Items = res.Code, res.Message, res.Items
	return nil
}

// replicaCommand proposes what the broker sent.
func (c *Controller) replicaCommand(ctx context.Context, req *ReplicaCommandRequest) *ReplicaCommandResponse {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ProposeTimeout)
	defer cancel()
	resp := &ReplicaCommandResponse{}
	res, err := c.propose(ctx, req.Command)
	if err != nil {
		resp.Code, resp.Message = errorCode(err)
		return resp
	}
	resp.Code, resp.Message, resp.Items = res.Code, res.Message, res.Items
	return resp
}

// ReplicaCommand has the active controller carry out one of the commands of ReplicaCommandRequest, and returns what became of
// its items. It tries once: the caller looks at the image again before the next attempt.
func (c *Client) ReplicaCommand(ctx context.Context, cmd Command) ([]ItemResult, error) {
	resp, err := c.data.do(ctx, &ReplicaCommandRequest{Command: cmd}, requestWithin)
	if err != nil {
		return nil, err
	}
	r := resp.(*ReplicaCommandResponse)
	if r.Code != 0 {
		return nil, fmt.Errorf("%s: %w: %s", cmd.kind(), kerr.ErrorForCode(r.Code), r.Message)
	}
	return r.Items, nil
}
