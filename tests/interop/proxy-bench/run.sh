#!/bin/bash
# Measures `credbroker proxy` in one run beside what else leads to an API server: nothing, `kubectl proxy`, kubeconfig-proxy and
# Go's `ReverseProxy`. Prints tables, and fails if a figure misses its limit. With --write, the tables of docs/proxy.md and
# docs/proxy.svg are written. About ten minutes with 100 rounds.
#
# usage: run.sh [--write] [--rounds N] [latency | kubectl | watches | unread]...
#   BROKER, SHIM    the programs (target/release/credbroker, target/shim/credbroker-exec)
#   KUBECONFIG_PROXY    a kubeconfig-proxy (github.com/howardjohn/kubeconfig-proxy); without it, it is left out
#   CONTROLPLANE    as in ../controlplane/build.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
PATH=$PATH:/usr/local/go/bin
write= rounds=100 sections=()
while (($#)); do
    case $1 in
        --write) write=1 ;;
        --rounds) rounds=$2; shift ;;
        *) sections+=("$1") ;;
    esac
    shift
done
broker=$(realpath "${BROKER:-$root/target/release/credbroker}")
shim=$(realpath "${SHIM:-$root/target/shim/credbroker-exec}")
for program in "$broker" "$shim"; do
    [[ -x $program ]] || { echo "run.sh: no program at $program" >&2; exit 1; }
done
[[ ${KUBECONFIG_PROXY-} ]] || echo "SKIPPED: kubeconfig-proxy: name its program in KUBECONFIG_PROXY" >&2
export CONTROLPLANE=${CONTROLPLANE:-$root/target/controlplane}
"$here/../controlplane/build.sh" kube-apiserver kubectl
work=$(mktemp -d)
trap '"$here/../controlplane/stop.sh" "$work/plane" || true; rm -rf "$work"' EXIT
go build -C "$here" -buildvcs=false -o "$work/bench" .
# A token is asked about once, so that the webhook takes no part in what is measured.
APISERVER_FLAGS=--authentication-token-webhook-cache-ttl=10h "$here/../controlplane/start.sh" "$work/plane"
ln -s "$here/../controlplane/plugin" "$work/plane/plugin"
code=0
"$work/bench" -plane "$work/plane" -kubectl "$(realpath "$CONTROLPLANE/bin/kubectl")" -broker "$broker" -shim "$shim" \
    ${KUBECONFIG_PROXY:+-kubeconfig-proxy "$(realpath "$KUBECONFIG_PROXY")"} -rounds "$rounds" -results "$work/results" \
    "${sections[@]}" || code=$?
if [[ $write && -e $work/results ]]; then
    PYTHONPATH=$here/../clients python3 - "$work/results" "$root/docs" "$(date -u +%F)" "$(nproc)" "$rounds" <<'END'
import json, pathlib, sys, plot, table
results, docs, date, cores, rounds = sys.argv[1:]
results, docs = json.loads(pathlib.Path(results).read_text()), pathlib.Path(docs)
text = "\n\n".join([f"Measured on {date}, {rounds} rounds, on {cores} cores.", *results["Tables"]])
table.replace(docs / "proxy.md", "bench", text)
bars = [(bar["Label"], bar["Median"], bar["P95"]) for bar in results["Bars"]]
if bars:
    plot.write(docs / "proxy.svg", "kubectl get pods, API server 40 ms away, median and 95th percentile", bars)
END
fi
exit "$code"
