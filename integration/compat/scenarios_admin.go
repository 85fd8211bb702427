package main

import (
	"fmt"
	"slices"
)

// described is the topic of the client's administration.
func (p *play) administered() string { return p.slug + "-admin" }

func (p *play) describeTopics() error {
	got, err := p.driver.do(p.ctx, order{Do: "topics"})
	if err != nil {
		return err
	}
	if !slices.Contains(got.Names, p.administered()) {
		return fmt.Errorf("%s is not among the topics %v", p.administered(), got.Names)
	}
	if got, err = p.driver.do(p.ctx, order{Do: "describe", Topic: p.administered()}); err != nil {
		return err
	}
	if got.Number != 2 {
		return fmt.Errorf("%d partitions, not 2", got.Number)
	}
	return nil
}

func (p *play) growTopic() error {
	if _, err := p.driver.do(p.ctx, order{Do: "grow", Topic: p.administered(), Partitions: 4}); err != nil {
		return err
	}
	return p.partitionsAre(p.administered(), 4)
}

func (p *play) configureTopic() error {
	if _, err := p.driver.do(p.ctx, order{Do: "configure", Topic: p.administered(), Name: "retention.ms", Value: "12345678"}); err != nil {
		return err
	}
	return p.eventually(func() error {
		got, err := p.driver.do(p.ctx, order{Do: "config", Topic: p.administered(), Name: "retention.ms"})
		if err != nil {
			return err
		}
		if got.Text != "12345678" {
			return fmt.Errorf("retention.ms is %q", got.Text)
		}
		return nil
	})
}

// describeGroups looks at the group of the scenarios before; its members have not all left.
func (p *play) describeGroups() error {
	if p.group == nil || len(p.group.members) == 0 {
		return fmt.Errorf("%w: the client has no group to look at", errNotOffered)
	}
	got, err := p.driver.do(p.ctx, order{Do: "groups"})
	if err != nil {
		return err
	}
	if !slices.Contains(got.Names, p.group.name) {
		return fmt.Errorf("%s is not among the groups %v", p.group.name, got.Names)
	}
	if got, err = p.driver.do(p.ctx, order{Do: "group", Group: p.group.name}); err != nil {
		return err
	}
	if got.Text != "Stable" || got.Number != len(p.group.members) {
		return fmt.Errorf("the group is %q with %d members, not Stable with %d", got.Text, got.Number, len(p.group.members))
	}
	return nil
}

func (p *play) deleteTopic() error {
	if _, err := p.driver.do(p.ctx, order{Do: "delete", Topic: p.administered()}); err != nil {
		return err
	}
	return p.eventually(func() error {
		topics, err := p.admin.ListTopics(p.ctx)
		if err == nil && topics.Has(p.administered()) {
			err = fmt.Errorf("%s is still there", p.administered())
		}
		return err
	})
}
