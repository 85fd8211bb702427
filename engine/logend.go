package engine

import "cairn/internal/ids"

// LogEnd is how far a log reaches, as an election compares it.
type LogEnd struct {
	End         ids.Offset      // exclusive
	LeaderEpoch ids.LeaderEpoch // of the last batch; ids.NoEpoch in an empty log
	// AppendMs is the wall clock, ms since 1970, when the last batch was saved here; of one saved before this process
	// started, the largest timestamp of the log's records. -1: no batch yet.
	AppendMs int64
}

// LogEnd returns how far the log reaches.
func (l *Log) LogEnd() LogEnd {
	l.sh.mu.RLock()
	defer l.sh.mu.RUnlock()
	end := LogEnd{End: l.state.Next, LeaderEpoch: ids.NoEpoch, AppendMs: l.appendMs}
	if end.AppendMs == 0 {
		end.AppendMs = l.state.MaxTimestamp
	}
	for i := len(l.epochs) - 1; i >= 0; i-- {
		if l.epochs[i].Start < end.End { // a later one has no batch yet
			end.LeaderEpoch = l.epochs[i].Epoch
			break
		}
	}
	return end
}
