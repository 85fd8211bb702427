package broker

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"cairn/broker/controller"
	"cairn/broker/topicconfig"
	"cairn/internal/ids"
)

// The configs of Kafka's replication throttle: rates of a broker, and which replicas of a topic they hold for.
const (
	leaderRate       = "leader.replication.throttled.rate"
	followerRate     = "follower.replication.throttled.rate"
	leaderReplicas   = "leader.replication.throttled.replicas"
	followerReplicas = "follower.replication.throttled.replicas"
)

// blockedWait is the wait where the rate is 0.
const blockedWait = time.Minute

// throttle bounds how fast this broker, as the leader, gives its log to replicas that are not in sync: in pieces of the Raft log to members
// far behind, and in pieces of the prefix to those that join a generation. Kafka's throttle holds for the replicas that it is set for. All
// others share what clients leave, see spare: all there is while nobody produces, and for a replica that is to be in sync again at least
// one and a half times what is produced here. A partition below its minimum of in-sync replicas is not held up by that, since clients wait for it.
type throttle struct {
	node   ids.NodeID
	images *controller.Store
	static topicconfig.Layer
	now    func() time.Time

	spare spare

	mu       sync.Mutex
	leader   bucket                 // Kafka's throttle of this broker as leader; guarded by mu
	follower map[ids.NodeID]*bucket // Kafka's throttle of other brokers; guarded by mu
	own      map[ids.NodeID]*bucket // what clients leave, by broker; guarded by mu
}

func newThrottle(node ids.NodeID, images *controller.Store, static topicconfig.Layer, now func() time.Time) *throttle {
	return &throttle{node: node, images: images, static: static, now: now, follower: map[ids.NodeID]*bucket{}, own: map[ids.NodeID]*bucket{}}
}

// bucket says when the bytes sent so far are paid for.
type bucket struct{ paid time.Time }

// charge adds bytes and returns how long it takes until they are paid for.
func (b *bucket) charge(bytes int, rate float64, now time.Time) time.Duration {
	if rate <= 0 {
		return blockedWait
	}
	if b.paid.Before(now) {
		b.paid = now
	}
	if cost := float64(bytes) / rate * float64(time.Second); cost < float64(blockedWait) {
		b.paid = b.paid.Add(time.Duration(cost))
	} else {
		b.paid = b.paid.Add(blockedWait)
	}
	return min(b.paid.Sub(now), blockedWait)
}

// charge is asked when the broker to has been sent so many bytes of a partition: how long it is to wait for more. False where nothing limits it.
func (t *throttle) charge(topic string, index int32, to ids.NodeID, bytes int) (time.Duration, bool) {
	img := t.images.Image()
	p, ok := img.Partition(topic, index)
	if !ok || slices.Contains(p.InSync, to) {
		return 0, false
	}
	configs := img.TopicConfigs(topic)
	asLeader := listed(configs[leaderReplicas], index, t.node) && t.configured(img, leaderRate, t.node) < math.MaxInt64
	asFollower := listed(configs[followerReplicas], index, to) && t.configured(img, followerRate, to) < math.MaxInt64
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spare.measure(now)
	wait := time.Duration(0)
	if asLeader {
		wait = t.leader.charge(bytes, float64(t.configured(img, leaderRate, t.node)), now)
	}
	if asFollower {
		wait = max(wait, bucketOf(t.follower, to).charge(bytes, float64(t.configured(img, followerRate, to)), now))
	}
	if asLeader || asFollower {
		return wait, true
	}
	if t.spare.clients < quietRate || len(p.InSync) < img.MinISR(topic, p) {
		return 0, false
	}
	t.spare.given += int64(bytes)
	return bucketOf(t.own, to).charge(bytes, t.spare.allowed(slices.Contains(p.Adding, to)), now), true
}

func bucketOf(m map[ids.NodeID]*bucket, n ids.NodeID) *bucket {
	b := m[n]
	if b == nil {
		b = &bucket{}
		m[n] = b
	}
	return b
}

// configured is a rate of a broker in force, as far as it is known here: another broker's properties file is not.
func (t *throttle) configured(img *controller.Image, name string, node ids.NodeID) int64 {
	layers := []map[string]string{img.BrokerConfigs(node), img.ClusterConfigs()}
	if node == t.node {
		layers = append(layers, t.static)
	}
	for _, layer := range layers {
		if n, err := strconv.ParseInt(layer[name], 10, 64); err == nil {
			return n
		}
	}
	return math.MaxInt64
}

// listed reports whether a list of partition:broker pairs, or *, names the replica.
func listed(list string, index int32, node ids.NodeID) bool {
	return list == "*" || slices.Contains(topicconfig.SplitList(list), fmt.Sprintf("%d:%d", index, node))
}

// pace is the throttle for a member of the partition's Raft group.
func (p *partition) pace(member ids.ReplicaID, bytes int) (time.Duration, bool) {
	state, ok := p.owner.cfg.Images.Image().PartitionOf(p.topicID, p.index)
	if !ok {
		return 0, false
	}
	node := state.NodeOf(member)
	if node == ids.NoNode {
		return 0, false
	}
	return p.owner.throttle.charge(p.topic, p.index, node, bytes)
}
