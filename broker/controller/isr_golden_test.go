package controller

import (
	"bytes"
	"fmt"
	"testing"

	"cairn/internal/ids"
)

// TestReplicationCommandsGolden pins the stored form of the commands of command_isr.go, their results and the state they
// lead to.
func TestReplicationCommandsGolden(t *testing.T) {
	m := newMachine(t)
	var out bytes.Buffer
	step := func(c Command) {
		res := m.apply(c)
		fmt.Fprintf(&out, "%s\n-> %s\n", EncodeCommand(Proposal{m.term, c}), res.encode())
	}
	step(SetLevel{ReplicationLevel})
	step(SetLevel{ReplicationLevel + 1})
	m.startBrokers(1, 2, 3)
	m.must(CreateTopics{[]NewTopic{{Name: "t", ID: testID(50), Partitions: nodes([]ids.NodeID{1, 2}, []ids.NodeID{2, 3})}}})
	m.must(m.report("t", 0, 1, 5))
	step(m.alter(1))
	step(NoteEnds{2, m.epoch(2), []PartitionEnd{{m.p().ID, LogEnd{LeaderEpoch: 0, End: 9, AppendMs: 4, AsOfMs: 6}}, {99, LogEnd{}}}})
	step(ChangeVoters{1, m.epoch(1), []VotersReport{{testID(50), 0, 0, 7, []ids.ReplicaID{m.p().ReplicaIDs[0], 12}}}})
	step(TransferLeaders{[]LeaderTransfer{{testID(50), 0, 0, 2, 1000}, {testID(50), 0, 0, ids.NoNode, 1000}}})
	step(m.change(1, Fence))
	step(NextGenerations{[]NewGeneration{{
		TopicID: testID(50), Seed: 2, Unclean: true,
		Pending: &PendingLoss{CauseUnclean, []ReplicaEnd{{1, LogEnd{LeaderEpoch: 0, End: 12, AppendMs: 5, AsOfMs: 7}}}, 8},
	}}})
	step(m.change(1, Unfence))
	step(m.seeded(2, 9))
	step(AlterReassignments{[]Reassignment{{TopicID: testID(50), Replicas: []ids.NodeID{3, 2}, AtMs: 9}, {TopicID: testID(50), Partition: 1}}})
	step(ChangeLosses{1, m.epoch(1), []LossReport{{testID(50), 0, m.p().LeaderEpoch, []LostRange{{0, 8, 12}}, nil, 11}}})
	step(ChangeLosses{2, m.epoch(2), []LossReport{{testID(50), 0, m.p().LeaderEpoch, nil, []LostRange{{0, 8, 9}}, 12}}})
	step(RenewReplicas{3, m.epoch(3), []ids.ReplicaID{m.img.Topics["t"].Partitions[1].ReplicaIDs[1], 5}})
	fmt.Fprintf(&out, "%s\n", indent(t, mustSnapshot(t, m.img)))
	golden(t, "replication.golden", out.Bytes())
}
