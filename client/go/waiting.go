package credbroker

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// A waitError says that a caller stopped to wait: its context ended, or the limit of the Broker passed. It is both the
// error of the context and the last failure.
type waitError struct {
	// What was waited for.
	what string
	end  error
	// nil: nothing has failed.
	last error
}

// stopped returns the error of a wait that ended with its context.
func stopped(ctx context.Context, what string, last error) error {
	end := context.Cause(ctx)
	if errors.Is(end, ErrClosed) {
		return end
	}
	return &waitError{what: what, end: end, last: last}
}

func (e *waitError) Error() string {
	last := "no failure, a plugin run may be in progress"
	if e.last != nil {
		last = withReason(e.last)
	}
	return fmt.Sprintf("credbroker: %s: %s; last: %s", e.what, bare(e.end), last)
}

// Unwrap returns both errors.
func (e *waitError) Unwrap() []error {
	if e.last == nil {
		return []error{e.end}
	}
	return []error{e.end, e.last}
}

// bare returns the text of an error that is part of another one.
func bare(err error) string { return strings.TrimPrefix(err.Error(), "credbroker: ") }

// withReason is bare, with the reason of the broker.
func withReason(err error) string {
	var failed *Error
	if errors.As(err, &failed) && failed.Reason != "" {
		return string(failed.Reason) + ": " + bare(err)
	}
	return bare(err)
}
