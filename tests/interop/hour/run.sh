#!/bin/bash
# 30 controllers through the proxy, whose credentials last eight seconds, while the broker and the proxy are started again and
# again on the sockets that systemd holds. Fails if a request fails, an informer lists again or misses an event, or a controller
# has a token or a key in its memory.
#
# usage: run.sh MINUTES [--write]
#   --write         writes the result into docs/proxy.md
#   BROKER, SHIM    the programs (target/debug/credbroker and credbroker-exec)
#   CONTROLPLANE    as in ../controlplane/build.sh
#   LOGS            where the logs go, and stay
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
PATH=$PATH:/usr/local/go/bin
for program in "${BROKER:=$root/target/debug/credbroker}" "${SHIM:=$root/target/debug/credbroker-exec}"; do
    [[ -x $program ]] || { echo "run.sh: no program at $program; build it with: cargo build --workspace" >&2; exit 1; }
done
"$here/../controlplane/build.sh" kube-apiserver
controller=$root/target/hour-controller
nice go build -C "$here/../node/programs/pods" -buildvcs=false -o "$controller" ./controller
plane=$(mktemp -d)
trap '"$here/../controlplane/stop.sh" "$plane"; rm -rf "$plane"' EXIT
"$here/../controlplane/start.sh" "$plane"
mkdir -p "${LOGS:=$plane/logs}"
PYTHONPATH=$here/../clients python3 "$here/run.py" "$plane" "$controller" "$BROKER" "$SHIM" "$LOGS" "$1" \
    ${2:+"$root/docs/proxy.md"}
