package main

import (
	"context"
	"time"
)

// defaultsShape heads the results of groups at the defaults; nothing is written of them.
const defaultsShape = "groups at the defaults"

// defaultSettle is how long a group at the defaults may take to divide its partitions anew: a session of 45 s, a heartbeat of 3 or 5 s until the
// others hear of it, the initial delay of 3 s, and what a busy machine needs.
const defaultSettle = 90 * time.Second

// playDefaults takes groups whose timeouts nobody has set through all steps: session 45 s, heartbeat 3 s (5 s with the consumer protocol), rebalance
// timeout 5 minutes (franz-go: 1 minute), initial delay 3 s, commits every 5 s; the brokers have no property that is not needed to start them.
func (r *runner) playDefaults(ctx context.Context, binary string) error {
	c, err := three(binary, nil)
	if err != nil {
		return err
	}
	java := []string{"java", "javac", "mvn"}
	return r.on(ctx, c, func() error {
		var plays []*play
		defer func() { closePlays(plays) }()
		for _, client := range []struct {
			stockClient
			args []string
		}{
			{stockClient{name: "Java 4.3.1", tools: java, install: javaClient("4.3.1")}, []string{"defaults", "classic"}},
			{stockClient{name: "Java 4.3.1, group.protocol=consumer", tools: java, install: javaClient("4.3.1")}, []string{"defaults", "consumer"}},
			{stockClient{name: "franz-go 1.22.3", tools: []string{"go"}, install: goClient("franz")}, []string{"defaults"}},
		} {
			p, err := r.open(ctx, c, client.stockClient)
			if err != nil {
				return err
			}
			if p != nil {
				p.memberArgs, p.settle = client.args, defaultSettle
				plays = append(plays, p)
			}
		}
		r.playGroups(ctx, c, defaultsShape, plays)
		return nil
	})
}
