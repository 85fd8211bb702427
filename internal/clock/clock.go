package clock

import "time"

// Now is the time, of both clocks.
func Now() time.Time { return stepped(time.Now()) }
