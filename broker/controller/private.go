package controller

import (
	"encoding/binary"
	"encoding/json"

	"cairn/internal/ids"
	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// registerLeadersKey is the API key of the request that registers leaders.
const registerLeadersKey = kmsg.Key(10000)

// PrivateAPIs are the requests between nodes that the controller listener offers besides Kafka's.
func PrivateAPIs() []wire.PrivateAPI {
	return []wire.PrivateAPI{{
		Key: int16(registerLeadersKey), Name: "RegisterLeaders",
		New: func() kmsg.Request { return &RegisterLeadersRequest{} },
	}, replicaCommandAPI()}
}

// RegisterLeadersRequest carries a RegisterLeaders command from a broker to the active controller. Its body is JSON, like
// the command's.
type RegisterLeadersRequest struct {
	Version int16
	RegisterLeaders
}

// Key and the methods below implement kmsg.Request.
func (*RegisterLeadersRequest) Key() int16                  { return int16(registerLeadersKey) }
func (*RegisterLeadersRequest) MaxVersion() int16           { return 0 }
func (r *RegisterLeadersRequest) SetVersion(v int16)        { r.Version = v }
func (r *RegisterLeadersRequest) GetVersion() int16         { return r.Version }
func (*RegisterLeadersRequest) IsFlexible() bool            { return true }
func (*RegisterLeadersRequest) ResponseKind() kmsg.Response { return &RegisterLeadersResponse{} }
func (r *RegisterLeadersRequest) AppendTo(dst []byte) []byte {
	return append(dst, mustMarshal(r.RegisterLeaders)...)
}

func (r *RegisterLeadersRequest) ReadFrom(src []byte) error {
	return strictUnmarshal(src, &r.RegisterLeaders)
}

// RegisterLeadersResponse answers it: Code for the whole request, else Items one by one.
type RegisterLeadersResponse struct {
	Version int16
	Code    int16
	Message string
	Items   []ItemResult
}

// Key and the methods below implement kmsg.Response.
func (*RegisterLeadersResponse) Key() int16                { return int16(registerLeadersKey) }
func (*RegisterLeadersResponse) MaxVersion() int16         { return 0 }
func (r *RegisterLeadersResponse) SetVersion(v int16)      { r.Version = v }
func (r *RegisterLeadersResponse) GetVersion() int16       { return r.Version }
func (*RegisterLeadersResponse) IsFlexible() bool          { return true }
func (*RegisterLeadersResponse) RequestKind() kmsg.Request { return &RegisterLeadersRequest{} }
func (r *RegisterLeadersResponse) AppendTo(dst []byte) []byte {
	return append(dst, mustMarshal(Result{Code: r.Code, Message: r.Message, Items: r.Items})...)
}

func (r *RegisterLeadersResponse) ReadFrom(src []byte) error {
	var res Result
	if err := json.Unmarshal(src, &res); err != nil {
		return err
	}
	r.Code, r.Message, r.Items = res.Code, res.Message, res.Items
	return nil
}

// Tags of our own in Kafka's registration request and response, far above those Kafka uses.
const (
	tagLogFlush        = 10000
	tagBootID          = 10001
	tagClusterID       = 10002
	tagMetadataReplica = 10003
	tagMetadataEnd     = 10004
	tagOpenedNs        = 10005
)

func tagText(t *kmsg.Tags, tag uint32) string { return string(tagBytes(t, tag)) }

func tagBytes(t *kmsg.Tags, tag uint32) (v []byte) {
	t.Each(func(k uint32, b []byte) {
		if k == tag {
			v = b
		}
	})
	return v
}

func setTagUint(t *kmsg.Tags, tag uint32, v uint64) {
	t.Set(tag, binary.BigEndian.AppendUint64(nil, v))
}

// tagUint is 0 if the tag is missing or not eight bytes long.
func tagUint(t *kmsg.Tags, tag uint32) uint64 {
	b := tagBytes(t, tag)
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// Registration is the controller's answer to a broker that registered.
type Registration struct {
	ClusterID string
	// BrokerEpoch is the index of the registration in the metadata log.
	BrokerEpoch int64
	// MetadataEnd is an index of the metadata log at or behind the registration. The broker starts no partition before its
	// own metadata replica has applied it (Store.Image().Index): until then it may know an older generation only.
	MetadataEnd uint64
	// MetadataReplica is the broker's replica id in the metadata group, added there as a non-voting member unless the node
	// is a voter.
	MetadataReplica ids.ReplicaID
}
