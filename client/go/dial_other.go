//go:build !linux && !darwin

package credbroker

import (
	"context"
	"net"
	"runtime"
)

func (s socket) dial(context.Context) (net.Conn, error) {
	return nil, &UntrustedError{
		Path:    s.firstThatExists(),
		Problem: "this package cannot check who listens on " + runtime.GOOS + "; use Linux or macOS",
	}
}

func ownerOf(string) (uint32, bool) { return 0, false }

type exposedPath struct {
	path        string
	owner, mode uint32
}
