package broker

import (
	"time"

	"cairn/broker/coordinator"
	"cairn/broker/group"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// handleDeleteGroups deletes groups without members, with their offsets.
func handleDeleteGroups(b *Broker, r *request) {
	req := r.msg.(*kmsg.DeleteGroupsRequest)
	if refuseTooMany(r, len(req.Groups)) {
		return
	}
	all := gather(len(req.Groups), func(list []kmsg.DeleteGroupsResponseGroup) {
		resp := kmsg.NewPtrDeleteGroupsResponse()
		resp.Groups = list
		r.reply(resp)
	})
	for i, id := range req.Groups {
		b.deleteGroup(id, func(code int16) {
			g := kmsg.NewDeleteGroupsResponseGroup()
			g.Group, g.ErrorCode = id, code
			all.put(i, g)
		})
	}
}

// deleteGroup deletes a group in as many operations as it takes.
func (b *Broker) deleteGroup(id string, done func(code int16)) {
	fail := func(err error) { done(groupErrorCode(err)) }
	b.groups.Do(id, func(m *group.Machine, now time.Time, fx *coordinator.Effects) {
		m.DeleteGroup(id, now, fx, func(e *group.Error, more bool, err error) {
			switch {
			case err != nil:
				fail(err)
			case e != nil:
				done(e.Code)
			case more:
				b.deleteGroup(id, done)
			default:
				done(0)
			}
		})
	}, fail)
}
