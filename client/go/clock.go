package credbroker

import "time"

// An instant is a reading of both clocks. The clock of the boot counts suspend and cannot be stepped.
type instant struct {
	wall time.Time
	boot time.Duration
}

// An expiry is the end of a credential by both clocks. The earlier one counts, so that neither a step of the wall clock nor
// a suspend extends a credential.
type expiry struct {
	wall time.Time
	boot time.Duration
}

func newExpiry(end time.Time, now instant) *expiry {
	left := max(end.Sub(now.wall), 0)
	return &expiry{wall: end, boot: now.boot + left}
}

func (e *expiry) isAfter(now instant) bool { return now.wall.Before(e.wall) && now.boot < e.boot }

func systemClock() instant {
	// Without the monotonic reading, which does not count suspend.
	return instant{wall: time.Now().Round(0), boot: sinceBoot()}
}
