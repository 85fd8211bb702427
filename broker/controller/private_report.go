package controller

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// reportKey is the API key of the request that carries a broker's commands about its own replicas.
const reportKey = kmsg.Key(10001)

// ReportRequest carries an AlterPartitions, ChangeVoters, ChangeLosses or RenewReplicas command from a broker to the active
// controller. One request for all, and not Kafka's AlterPartition, which knows the first of them only. Whoever did not get
// an answer does not know whether the command was applied; sending it again does no harm.
type ReportRequest struct {
	Version int16
	Command Command
}

type reportBody struct {
	Kind string          `json:"kind"`
	Body json.RawMessage `json:"body"`
}

// Key and the methods below implement kmsg.Request.
func (*ReportRequest) Key() int16                  { return int16(reportKey) }
func (*ReportRequest) MaxVersion() int16           { return 0 }
func (r *ReportRequest) SetVersion(v int16)        { r.Version = v }
func (r *ReportRequest) GetVersion() int16         { return r.Version }
func (*ReportRequest) IsFlexible() bool            { return true }
func (*ReportRequest) ResponseKind() kmsg.Response { return &ReportResponse{} }
func (r *ReportRequest) AppendTo(dst []byte) []byte {
	return append(dst, mustMarshal(reportBody{r.Command.kind(), mustMarshal(r.Command)})...)
}

func (r *ReportRequest) ReadFrom(src []byte) error {
	var b reportBody
	if err := strictUnmarshal(src, &b); err != nil {
		return err
	}
	c, err := decodeReplication(b.Kind, b.Body)
	if err != nil {
		return err
	}
	if !isReport(c) {
		return fmt.Errorf("%s is not a broker's to ask for", b.Kind)
	}
	r.Command = c
	return nil
}

func isReport(c Command) bool {
	switch c.(type) {
	case AlterPartitions, ChangeVoters, ChangeLosses, RenewReplicas:
		return true
	}
	return false
}

// ReportResponse answers it: Code for the whole request, else Items one by one. What the items say of the partition is for
// messages: a leader takes ISR and minimum from its own metadata only.
type ReportResponse struct {
	Version int16
	Code    int16
	Message string
	Items   []ItemResult
}

// Key and the methods below implement kmsg.Response.
func (*ReportResponse) Key() int16                { return int16(reportKey) }
func (*ReportResponse) MaxVersion() int16         { return 0 }
func (r *ReportResponse) SetVersion(v int16)      { r.Version = v }
func (r *ReportResponse) GetVersion() int16       { return r.Version }
func (*ReportResponse) IsFlexible() bool          { return true }
func (*ReportResponse) RequestKind() kmsg.Request { return &ReportRequest{} }
func (r *ReportResponse) AppendTo(dst []byte) []byte {
	return append(dst, mustMarshal(Result{Code: r.Code, Message: r.Message, Items: r.Items})...)
}

func (r *ReportResponse) ReadFrom(src []byte) error {
	var res Result
	if err := json.Unmarshal(src, &res); err != nil {
		return err
	}
	r.Code, r.Message, r.Items = res.Code, res.Message, res.Items
	return nil
}

// report answers a ReportRequest.
func (c *Controller) report(ctx context.Context, req *ReportRequest) *ReportResponse {
	resp := &ReportResponse{}
	if !isReport(req.Command) {
		resp.Code, resp.Message = kerr.InvalidRequest.Code, "not a broker's to ask for"
		return resp
	}
	res, err := c.propose(ctx, req.Command)
	if err != nil {
		resp.Code, resp.Message = errorCode(err)
		return resp
	}
	resp.Code, resp.Message, resp.Items = res.Code, res.Message, res.Items
	return resp
}
