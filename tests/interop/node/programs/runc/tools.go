//go:build tools

// Package tools names the command that build.sh builds, so that go.sum has its modules.
package tools

import _ "github.com/opencontainers/runc"
