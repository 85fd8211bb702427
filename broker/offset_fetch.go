package broker

import (
	"time"

	"cairn/broker/controller"
	"cairn/broker/coordinator"
	"cairn/broker/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The versions of OffsetFetch from which on it asks for several groups, and names topics by their ids.
const (
	offsetFetchGroups   = 8
	offsetFetchTopicIDs = 10
)

// handleOffsetFetch tells what groups have committed.
func handleOffsetFetch(b *Broker, r *request) {
	req := r.msg.(*kmsg.OffsetFetchRequest)
	groups := req.Groups
	if req.Version < offsetFetchGroups {
		groups = []kmsg.OffsetFetchRequestGroup{singleFetch(req)}
	}
	all := gather(len(groups), func(list []kmsg.OffsetFetchResponseGroup) {
		resp := kmsg.NewPtrOffsetFetchResponse()
		if resp.Groups = list; req.Version < offsetFetchGroups {
			flattenFetch(resp, list[0], req)
		}
		r.reply(resp)
	})
	img := b.images.Image()
	for i, g := range groups {
		b.fetchOffsets(img, g, req, func(resp kmsg.OffsetFetchResponseGroup) { all.put(i, resp) })
	}
}

// fetchOffsets asks the coordinator of one group.
func (b *Broker) fetchOffsets(img *controller.Image, g kmsg.OffsetFetchRequestGroup, req *kmsg.OffsetFetchRequest, done func(kmsg.OffsetFetchResponseGroup)) {
	byID := req.Version >= offsetFetchTopicIDs
	var unknown []kmsg.OffsetFetchRequestGroupTopic
	if byID && g.Topics != nil {
		known := []kmsg.OffsetFetchRequestGroupTopic{}
		for _, t := range g.Topics {
			if topic := img.TopicsByID[t.TopicID]; topic != nil {
				t.Topic = topic.Name
				known = append(known, t)
			} else {
				unknown = append(unknown, t)
			}
		}
		g.Topics = known
	}
	fail := func(err error) {
		resp := kmsg.NewOffsetFetchResponseGroup()
		resp.Group, resp.ErrorCode = g.Group, groupErrorCode(err)
		done(resp)
	}
	b.groups.Do(g.Group, func(m *group.Machine, now time.Time, fx *coordinator.Effects) {
		m.OffsetFetch(g, req.RequireStable, now, fx, func(resp *kmsg.OffsetFetchResponseGroup, err error) {
			if err != nil {
				fail(err)
				return
			}
			if byID && resp.ErrorCode == 0 {
				identifyFetched(img, resp)
				resp.Topics = append(resp.Topics, unknownFetched(unknown)...)
			}
			done(*resp)
		})
	}, fail)
}

// identifyFetched fills in topic ids. Topics that are gone have none and are left out.
func identifyFetched(img *controller.Image, resp *kmsg.OffsetFetchResponseGroup) {
	kept := resp.Topics[:0]
	for _, t := range resp.Topics {
		if t.TopicID == [16]byte{} {
			topic := img.Topics[t.Topic]
			if topic == nil {
				continue
			}
			t.TopicID = topic.ID
		}
		kept = append(kept, t)
	}
	resp.Topics = kept
}

func unknownFetched(topics []kmsg.OffsetFetchRequestGroupTopic) (list []kmsg.OffsetFetchResponseGroupTopic) {
	for _, t := range topics {
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.TopicID = t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.ErrorCode, rp.Metadata = p, -1, -1, kerr.UnknownTopicID.Code, kmsg.StringPtr("")
			rt.Partitions = append(rt.Partitions, rp)
		}
		list = append(list, rt)
	}
	return list
}

// singleFetch is an old request, for one group, in the form of a new one.
func singleFetch(req *kmsg.OffsetFetchRequest) kmsg.OffsetFetchRequestGroup {
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = req.Group
	if req.Topics != nil {
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetFetchRequestGroupTopic()
		rt.Topic, rt.Partitions = t.Topic, t.Partitions
		g.Topics = append(g.Topics, rt)
	}
	return g
}

// flattenFetch is the way back. Version 1 has no place for an error of the group, so that each partition tells it.
func flattenFetch(resp *kmsg.OffsetFetchResponse, g kmsg.OffsetFetchResponseGroup, req *kmsg.OffsetFetchRequest) {
	resp.Groups, resp.ErrorCode = nil, g.ErrorCode
	for _, t := range g.Topics {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if g.ErrorCode == 0 {
		return
	}
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = p, -1, -1, kmsg.StringPtr(""), g.ErrorCode
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
}
