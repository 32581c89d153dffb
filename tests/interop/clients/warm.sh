#!/bin/bash
# Measures what a user waits for: `kubectl get --raw /version` with a static token, the shim, a plugin of 500 ms, and
# kube-credential-cache; then 50 kubectl in parallel with nothing cached. Writes the table into docs/clients.md, and docs/warm.svg.
# The machine should be idle. setup.sh prepares kubectl.
#
# usage: warm.sh [ROUNDS]     100 by default
#   BROKER, SHIM    the programs (target/release/credbroker, target/shim/credbroker-exec)
#   KCC             kcc-cache of kube-credential-cache; by default it comes from its Go module, and is left out if it cannot be had
#   CLIENTS, CONTROLPLANE    the directories of setup.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
clients=${CLIENTS:-$root/target/clients}
PATH=$PATH:/usr/local/go/bin
[[ -x $clients/kubectl ]] || { echo "warm.sh: run tests/interop/clients/setup.sh first" >&2; exit 1; }
kcc=${KCC:-$clients/kcc-cache}
if [[ ! -x $kcc ]]; then
    GOBIN=$(realpath "$clients") go install -buildvcs=false github.com/ryodocx/kube-credential-cache/cmd/kcc-cache@v0.5.1 ||
        { echo "SKIPPED: kube-credential-cache: its Go module cannot be had; name a kcc-cache in KCC" >&2; kcc=; }
fi
plane=$(mktemp -d)
trap '"$here/../controlplane/stop.sh" "$plane"; rm -rf "$plane"' EXIT
"$here/../controlplane/start.sh" "$plane"
python3 "$here/warm.py" "$plane" "$clients/kubectl" "${BROKER:-$root/target/release/credbroker}" \
    "${SHIM:-$root/target/shim/credbroker-exec}" "$root/docs" "${1:-100}" ${kcc:+"$kcc"}
