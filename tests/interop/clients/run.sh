#!/bin/bash
# Runs every client with every kind of credential, with and without the broker, against a real API server. Fails if one
# recovers without the broker and not with it. About ten minutes, and half an hour if nothing is built.
#
# usage: run.sh [--write] [--only WORD] [--jobs N]
#   --write         writes the table into docs/clients.md
#   --only WORD     the clients whose names contain it; their rows are printed only
#   BROKER, SHIM    the programs (target/debug/credbroker and credbroker-exec)
#   CLIENTS, CONTROLPLANE    as in setup.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
arguments=()
for argument; do
    [[ $argument != --write ]] || argument="--write=$root/docs/clients.md"
    arguments+=("$argument")
done
for program in "${BROKER:=$root/target/debug/credbroker}" "${SHIM:=$root/target/debug/credbroker-exec}"; do
    [[ -x $program ]] || { echo "run.sh: no program at $program; build it with: cargo build --workspace" >&2; exit 1; }
done
"$here/setup.sh"
plane=$(mktemp -d)
trap '"$here/../controlplane/stop.sh" "$plane"; rm -rf "$plane"' EXIT
"$here/../controlplane/start.sh" "$plane"
python3 "$here/run.py" "$plane" "${CLIENTS:-$root/target/clients}" "$BROKER" "$SHIM" "${arguments[@]}"
