package broker

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// handleDescribeLogDirs tells how large the replicas here are, those named or all, and how full their disk is.
func handleDescribeLogDirs(b *Broker, r *request) {
	req := r.msg.(*kmsg.DescribeLogDirsRequest)
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir = b.cfg.DataDir
	if path, err := filepath.Abs(dir.Dir); err == nil { // else the relative one has to do
		dir.Dir = path
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir.Dir, &disk); err != nil {
		b.noise.warn(b.log, "size of the data directory cannot be read", zap.String("dir", dir.Dir), zap.Error(err))
		dir.ErrorCode = kerr.KafkaStorageError.Code
	} else {
		dir.TotalBytes, dir.UsableBytes = int64(disk.Blocks)*disk.Bsize, int64(disk.Bavail)*disk.Bsize
	}
	wanted := wantedReplicas(req)
	for _, p := range b.replicas.partitions() {
		if wanted != nil && !slices.Contains(wanted[p.topic], p.index) {
			continue
		}
		dir.Topics = addReplicaSize(dir.Topics, p)
	}
	resp.Dirs = append(resp.Dirs, dir)
	r.reply(resp)
}

// wantedReplicas are the partitions named by topic; nil for all.
func wantedReplicas(req *kmsg.DescribeLogDirsRequest) map[string][]int32 {
	if req.Topics == nil {
		return nil
	}
	wanted := map[string][]int32{}
	for _, t := range req.Topics {
		wanted[t.Topic] = append(wanted[t.Topic], t.Partitions...)
	}
	return wanted
}

// addReplicaSize adds one replica, in the order of names. Its lag is how far its log ends below the high watermark that it has heard of.
func addReplicaSize(topics []kmsg.DescribeLogDirsResponseDirTopic, p *partition) []kmsg.DescribeLogDirsResponseDirTopic {
	at, found := slices.BinarySearchFunc(topics, p.topic, func(t kmsg.DescribeLogDirsResponseDirTopic, name string) int { return cmp.Compare(t.Topic, name) })
	if !found {
		t := kmsg.NewDescribeLogDirsResponseDirTopic()
		t.Topic = p.topic
		topics = slices.Insert(topics, at, t)
	}
	log := p.log()
	rp := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
	rp.Partition, rp.Size, rp.OffsetLag = p.index, log.SizeBytes(), max(0, int64(p.highWatermark()-log.End()))
	t := &topics[at]
	place, _ := slices.BinarySearchFunc(t.Partitions, p.index, func(p kmsg.DescribeLogDirsResponseDirTopicPartition, i int32) int {
		return cmp.Compare(p.Partition, i)
	})
	t.Partitions = slices.Insert(t.Partitions, place, rp)
	return topics
}
