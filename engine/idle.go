package engine

import "cairn/internal/ids"

// A checkpoint (what is applied, and the high watermark) is stored with the next save. Behind the last save of a partition that nobody
// writes to there is none, so what has been learned since it is stored once in a while.

// storedCheckpoint is the checkpoint row as it is, or is about to be, in the store; guarded by the shard's mu.
type storedCheckpoint struct {
	row     checkpointRow
	changes uint64 // of row
	// idleLast is the end of the log at the last call of CheckpointIdle.
	idleLast ids.RaftIndex
}

func (s *storedCheckpoint) put(row checkpointRow) {
	s.row = row
	s.changes++
}

func (l *Log) checkpointStored() checkpointRow {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	return l.checkpoint.row
}

// idleCheckpoint is a checkpoint that CheckpointIdle is storing.
type idleCheckpoint struct {
	l       *Log
	changes uint64
}

// CheckpointIdle stores the checkpoints that have changed of the logs that nothing was saved to since the call before: all in one commit, which
// waits as Config.Flush says, and none when there is nothing to store. It returns how many.
//
// A save may commit an older checkpoint before, or a newer one before ours, which then replaces it. Either is told by the count of
// changes, upon which the stored one counts as unknown and is written again.
func (e *Engine) CheckpointIdle() (stored int, err error) {
	e.idle.Lock() // no log is released meanwhile, whose partition might then get a row after it has gone
	defer e.idle.Unlock()
	if e.closed.Load() {
		return 0, ErrClosed
	}
	e.mu.RLock()
	logs := make([]*Log, 0, len(e.logs))
	for _, l := range e.logs {
		logs = append(logs, l)
	}
	e.mu.RUnlock()
	b := e.newBatch(0)
	defer b.Close()
	var put []idleCheckpoint
	for _, l := range logs {
		if c, changes, ok := l.takeIdle(); ok {
			set(b, appendPartitionKey(nil, rowCheckpoint, l.binding.Info.ID), c.appendTo(nil))
			put = append(put, idleCheckpoint{l, changes})
		}
	}
	if b.Empty() {
		return 0, nil
	}
	if err := e.commit(b, flushSaved); err != nil {
		return 0, err
	}
	for _, c := range put {
		c.l.settleIdle(c.changes)
	}
	return len(put), nil
}

// takeIdle is the checkpoint to store, which counts as stored from here on.
func (l *Log) takeIdle() (c checkpointRow, changes uint64, ok bool) {
	l.sh.mu.Lock()
	defer l.sh.mu.Unlock()
	k := &l.checkpoint
	idle := k.idleLast == l.sh.last
	k.idleLast = l.sh.last
	if c = l.checkpointRow(l.sh.last); !idle || c == k.row {
		return c, 0, false
	}
	k.put(c)
	return c, k.changes, true
}

// settleIdle finds out whether a save came between.
func (l *Log) settleIdle(changes uint64) {
	l.sh.mu.Lock()
	defer l.sh.mu.Unlock()
	if l.checkpoint.changes != changes {
		l.checkpoint.put(checkpointRow{})
	}
}
