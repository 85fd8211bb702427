package broker

import (
	"regexp"
	"slices"

	"cairn/broker/controller"
	"cairn/wire"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const apiVersionsKey = int16(kmsg.ApiVersions)

// softwareName is what ApiVersions v3 and later accept as name and version of the client's software (KIP-511).
var softwareName = regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?$`)

// handleAPIVersions lists what the listener offers. A request of a version that is not offered is answered too, in
// version 0, with the range of ApiVersions itself, so that any client can find a common version.
func handleAPIVersions(b *Broker, r *request) {
	resp := kmsg.NewPtrApiVersionsResponse()
	req, ok := r.msg.(*kmsg.ApiVersionsRequest)
	switch {
	case !ok: // wire.ErrUnsupportedVersion
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		resp.ApiKeys = slices.DeleteFunc(offeredAPIs(r.conn.listener.controller), func(k kmsg.ApiVersionsResponseApiKey) bool {
			return k.ApiKey != apiVersionsKey
		})
	case req.Version >= 3 && !(softwareName.MatchString(req.ClientSoftwareName) && softwareName.MatchString(req.ClientSoftwareVersion)):
		resp.ErrorCode = kerr.InvalidRequest.Code
	default:
		resp.ApiKeys = offeredAPIs(r.conn.listener.controller)
		addFeatures(resp, b.images.Image(), req.Version)
	}
	r.reply(resp)
}

// addFeature announces a feature of the cluster. level 0: it is off, and not announced as in use.
func addFeature(resp *kmsg.ApiVersionsResponse, name string, lowest, highest, level, version int16) {
	// A feature that can be off is hidden from older clients: they do not take a lowest version of 0.
	if version >= 4 || lowest > 0 {
		f := kmsg.NewApiVersionsResponseSupportedFeature()
		f.Name, f.MinVersion, f.MaxVersion = name, lowest, highest
		resp.SupportedFeatures = append(resp.SupportedFeatures, f)
	}
	if level > 0 {
		f := kmsg.NewApiVersionsResponseFinalizedFeature()
		f.Name, f.MinVersionLevel, f.MaxVersionLevel = name, level, level
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, f)
	}
}

// elrFeature is what Kafka calls KIP-966: the eligible leader replicas are kept, and shown by DescribeTopicPartitions.
const elrFeature, elrVersion = "eligible.leader.replicas.version", 1

// addFeatures announces which of Kafka's features there are, and which are in use.
func addFeatures(resp *kmsg.ApiVersionsResponse, img *controller.Image, version int16) {
	resp.FinalizedFeaturesEpoch = int64(img.Index)
	addFeature(resp, elrFeature, 0, elrVersion, elrVersion, version)
	for _, f := range controller.Features() {
		addFeature(resp, f.Name, f.Min, f.Max, img.Feature(f.Name), version)
	}
}

// offeredAPIs lists the keys that a listener serves, in order, with their versions. The requests that nodes of cairn
// alone send are left out.
func offeredAPIs(controllerListener bool) []kmsg.ApiVersionsResponseApiKey {
	table := brokerTable()
	if controllerListener {
		table = controllerTable()
	}
	var keys []kmsg.ApiVersionsResponseApiKey
	for _, a := range wire.APIs() {
		if table[kmsg.Key(a.Key)] == nil {
			continue
		}
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = a.Key, a.AnnouncedMin, a.Max
		keys = append(keys, k)
	}
	return keys
}
