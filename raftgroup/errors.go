package raftgroup

import (
	"context"
	"errors"
	"fmt"

	"github.com/lni/dragonboat/v4"
)

// Errors of groups and hosts. All but ErrUnknown are definite: nothing was appended.
var (
	ErrNotLeader   = errors.New("raftgroup: this replica is not the leader")
	ErrClosed      = errors.New("raftgroup: closed")
	ErrTooLarge    = errors.New("raftgroup: proposal exceeds the bound of bytes in flight")
	ErrNotMember   = errors.New("raftgroup: no such member")
	ErrRejected    = errors.New("raftgroup: membership change rejected")
	ErrUnknown     = errors.New("raftgroup: outcome unknown") // the proposal may still be appended, or was
	ErrUnknownPeer = errors.New("raftgroup: connection of a stranger")
)

// fromDragonboat maps the errors of a request that was refused before it was queued.
func fromDragonboat(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, dragonboat.ErrShardNotReady), errors.Is(err, dragonboat.ErrShardNotInitialized):
		return ErrNotLeader
	case errors.Is(err, dragonboat.ErrClosed), errors.Is(err, dragonboat.ErrShardClosed), errors.Is(err, dragonboat.ErrShardNotFound):
		return ErrClosed
	case errors.Is(err, dragonboat.ErrPayloadTooBig):
		return ErrTooLarge
	}
	return fmt.Errorf("raftgroup: %w", err)
}

// unknown wraps the reason why a wait ended before the outcome was known.
func unknown(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
}
