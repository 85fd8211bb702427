package broker

import (
	"errors"
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// listedPart is the answer of one partition of __consumer_offsets.
type listedPart struct {
	groups []kmsg.ListGroupsResponseGroup
	err    error
}

// handleListGroups lists the groups that this broker coordinates.
func handleListGroups(b *Broker, r *request) {
	req := r.msg.(*kmsg.ListGroupsRequest)
	n := b.groups.Partitions()
	all := gather(int(n), func(parts []listedPart) {
		resp := kmsg.NewPtrListGroupsResponse()
		for _, p := range parts {
			switch {
			case p.err == nil:
				resp.Groups = append(resp.Groups, p.groups...)
			case !errors.Is(p.err, coordinator.ErrNotCoordinator): // another broker lists those
				resp.ErrorCode = groupErrorCode(p.err)
			}
		}
		r.reply(resp)
	})
	for i := range n {
		b.groups.DoPartition(i, func(m *group.Machine, now time.Time, fx *coordinator.Effects) {
			m.ListGroups(req.StatesFilter, req.TypesFilter, now, fx, func(list []kmsg.ListGroupsResponseGroup, err error) {
				all.put(int(i), listedPart{list, err})
			})
		}, func(err error) { all.put(int(i), listedPart{err: err}) })
	}
}
