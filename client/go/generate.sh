#!/bin/bash
# Writes credbrokerv1 again after a change of proto/, with the protoc and the plugins of tests/interop/channels/setup.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=${TOOLS:-$PWD/target/channels}
package=module=github.com/credbroker/credbroker/client/go
PATH=$tools/protoc:$tools/go/bin:$PATH protoc -I proto --go_out=client/go --go_opt="$package" \
    --go-grpc_out=client/go --go-grpc_opt="$package" credbroker/v1/credbroker.proto
