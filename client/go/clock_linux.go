package credbroker

import (
	"time"

	"golang.org/x/sys/unix"
)

func sinceBoot() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return time.Since(started)
	}
	return time.Duration(now.Nano())
}

var started = time.Now()
