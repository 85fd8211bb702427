package tools

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"cairn/engine"
	"cairn/wire/private"
)

// checkpointTimeout bounds the making of a checkpoint, which copies where it cannot link.
const checkpointTimeout = 30 * time.Minute

// CheckpointOptions says of which broker a checkpoint is made, and where.
type CheckpointOptions struct {
	Broker int32  // -1: the only one
	Dir    string // on the broker's machine
}

// Checkpoint has a running broker copy its data directory.
func Checkpoint(ctx context.Context, conn Connection, o CheckpointOptions, out Output) error {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	return withAdminFor(ctx, conn, out, checkpointTimeout, func(ctx context.Context, cl *kgo.Client) error {
		addresses, err := brokerAddresses(ctx, cl)
		if err != nil {
			return err
		}
		broker, err := pickBroker(o.Broker, addresses)
		if err != nil {
			return err
		}
		resp, err := conn.ask(ctx, addresses[broker], &private.CheckpointRequest{Body: private.CheckpointQuery{Dir: dir}})
		if err != nil {
			return fmt.Errorf("broker %d: %w", broker, err)
		}
		s := resp.(*private.CheckpointResponse).Body.Status
		if err := brokerError(s.Code, &s.Message); err != nil {
			return fmt.Errorf("broker %d: %w", broker, err)
		}
		if out.JSON {
			return out.writeJSON(map[string]any{"broker": broker, "dir": dir})
		}
		_, err = fmt.Fprintf(out.Out, "Broker %d has made a checkpoint in %s.\n", broker, dir)
		return err
	})
}

// pickBroker is the wanted live broker, or the only one.
func pickBroker(wanted int32, addresses map[int32]string) (int32, error) {
	if wanted >= 0 {
		if addresses[wanted] == "" {
			return 0, fmt.Errorf("broker %d is not live; `cairn status` lists those that are", wanted)
		}
		return wanted, nil
	}
	if len(addresses) != 1 {
		return 0, fmt.Errorf("%d brokers are live: --broker says of which the checkpoint is to be made", len(addresses))
	}
	for id := range addresses {
		wanted = id
	}
	return wanted, nil
}

// Restore makes a checkpoint a data directory to start a node on.
func Restore(dir string, wholeCluster bool, out Output) error {
	identity, err := engine.Restore(dir, wholeCluster)
	if err != nil {
		return err
	}
	if out.JSON {
		return out.writeJSON(map[string]any{"dir": dir, "node": identity.NodeID, "cluster": identity.ClusterID})
	}
	_, err = fmt.Fprintf(out.Out, "%s is a data directory of node %d in cluster %s now: start it with log.dirs=%s.\n", dir, identity.NodeID, identity.ClusterID, dir)
	return err
}
