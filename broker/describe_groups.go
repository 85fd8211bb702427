package broker

import (
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleDescribeGroups describes classic groups with their members.
func handleDescribeGroups(b *Broker, r *request) {
	req := r.msg.(*kmsg.DescribeGroupsRequest)
	if refuseTooMany(r, len(req.Groups)) {
		return
	}
	all := gather(len(req.Groups), func(list []kmsg.DescribeGroupsResponseGroup) {
		resp := kmsg.NewPtrDescribeGroupsResponse()
		resp.Groups = list
		if req.IncludeAuthorizedOperations {
			for i := range list {
				if list[i].ErrorCode == 0 {
					list[i].AuthorizedOperations = groupOperations
				}
			}
		}
		r.reply(resp)
	})
	for i, id := range req.Groups {
		refuse := func(code int16) {
			g := kmsg.NewDescribeGroupsResponseGroup()
			g.Group, g.ErrorCode = id, code
			all.put(i, g)
		}
		if id == "" {
			refuse(kerr.InvalidGroupID.Code)
			continue
		}
		fail := func(err error) { refuse(groupErrorCode(err)) }
		b.groups.Do(id, func(m *group.Machine, now time.Time, fx *coordinator.Effects) {
			m.DescribeGroup(id, req.Version, now, fx, func(g *kmsg.DescribeGroupsResponseGroup, err error) {
				if err != nil {
					fail(err)
					return
				}
				all.put(i, *g)
			})
		}, fail)
	}
}
