//go:build !linux

package credbroker

import "time"

// The monotonic clock of Go counts suspend on Windows, and not on macOS, where the wall clock alone counts it.
func sinceBoot() time.Duration { return time.Since(started) }

var started = time.Now()
