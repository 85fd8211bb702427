package tools

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestNoteAfterATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &capture{}
		done := c.output(false).noteAfter(slowAnswer, "waiting for %s", "x")
		time.Sleep(slowAnswer - time.Millisecond)
		done()
		time.Sleep(slowAnswer)
		if c.err.String() != "" {
			t.Errorf("printed %q in time", c.err.String())
		}
		done = c.output(false).noteAfter(slowAnswer, "waiting for %s", "x")
		time.Sleep(slowAnswer)
		done()
		if c.err.String() != "waiting for x\n" {
			t.Errorf("printed %q", c.err.String())
		}
	})
}

func TestCreateWithoutAControllerSaysSo(t *testing.T) {
	cluster, conn := fakeCluster(t)
	cluster.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
		resp := r.ResponseKind().(*kmsg.CreateTopicsResponse)
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic, rt.ErrorCode = "t", kerr.RequestTimedOut.Code
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	c := &capture{}
	err := CreateTopic(testContext(t), conn, CreateTopicOptions{Topic: "t", Partitions: -1, ReplicationFactor: -1}, c.output(false))
	if err == nil || !strings.Contains(err.Error(), "no controller has answered in time") || !strings.Contains(err.Error(), "cairn status") {
		t.Errorf("error %v", err)
	}
}

func TestDeletedConfigIsOneThatThereIs(t *testing.T) {
	_, conn := fakeCluster(t, kfake.SeedTopics(1, "t"))
	for name, want := range map[string]string{
		"retention.ns":      "is retention.ms meant?",
		"nothing.like.this": "no such config; `cairn topics describe`",
		"retention.ms":      "",
	} {
		c := &capture{}
		o := AlterTopicOptions{TopicSelection: TopicSelection{Topic: "t"}, DeleteConfigs: []string{name}}
		err := AlterTopics(testContext(t), conn, o, c.output(false))
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}
