#!/bin/bash
# The tests with a real Kubernetes: what they need is built first, and kept in target (CONTROLPLANE names another directory).
#
# usage: tests/interop/run.sh [all | SECTION...]
#   controlplane    the broker, the Go module, the examples and the manifests with a real API server
#   clients         kubectl, helm, k9s and seven libraries, with and without the broker, and through the proxy
#   hour            30 controllers through the proxy for PROXY_MINUTES (2), with rotations and restarts
#   node            the manifests and the images of deploy/ on a Kubernetes node; controllers side by side for NODE_MINUTES (10)
#   walkthroughs    the pages in docs/walkthroughs, each command of them; WITHOUT_SPIRE=1 leaves out the page that needs SPIRE
# A section that this machine cannot run says SKIPPED, and why. With BLESS=1, the tables of docs/clients.md and docs/proxy.md are written.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=$PATH:/usr/local/go/bin
sections=(controlplane clients hour node walkthroughs)

broker=$PWD/target/debug/credbroker
shim=${SHIM:-$PWD/target/debug/credbroker-exec}
work=$(mktemp -d)
# `timeout` sends its signal twice, to this process and to its group.
trap 'trap "" HUP INT TERM; tests/interop/controlplane/stop.sh "$work/controlplane" 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 143' HUP INT TERM

controlplane() {
    tests/interop/controlplane/build.sh
    tests/interop/controlplane/start.sh "$work/controlplane"
    CREDBROKER_CONTROLPLANE=$work/controlplane SHIM=$shim cargo test --locked --test interop real::
    CREDBROKER_CONTROLPLANE=$work/controlplane CREDBROKER_BINARY=$broker CREDBROKER_EXEC=$shim \
        go test -C client/go -count=1 -run RealAPIServer .
    CREDBROKER_CONTROLPLANE=$work/controlplane go test -C client/go/examples/multicluster -count=1 -run RealAPIServer .
    tests/interop/controlplane/stop.sh "$work/controlplane"
    deploy/check.sh "$broker" "$shim"
}

clients() {
    BROKER=$broker SHIM=$shim tests/interop/clients/run.sh ${BLESS:+--write}
}

hour() {
    BROKER=$broker SHIM=$shim tests/interop/hour/run.sh "${PROXY_MINUTES:-2}" ${BLESS:+--write}
}

node() {
    NODE_MINUTES=${NODE_MINUTES:-10} tests/interop/node/test.sh
}

walkthroughs() {
    local page
    tests/interop/controlplane/build.sh kube-apiserver kubectl
    [[ ${WITHOUT_SPIRE-} ]] || tests/interop/spire/build.sh
    for page in docs/walkthroughs/*.md; do
        if [[ ${WITHOUT_SPIRE-} && $page == */spiffe.md ]]; then
            echo "SKIPPED: $page: SPIRE is left out; run: tests/interop/run.sh walkthroughs"
            continue
        fi
        tests/interop/walkthroughs/replay "$page" "$broker" "$shim"
    done
}

(($#)) || set -- all
[[ $* != all ]] || set -- "${sections[@]}"
for section; do
    [[ " ${sections[*]} " == *" $section "* ]] || { echo "run.sh: no section $section: all, ${sections[*]}" >&2; exit 1; }
done
cargo build --locked --workspace
results=
for section; do
    printf '\n== %s ==\n' "$section"
    began=$SECONDS
    "$section" 2>&1 | tee "$work/output"
    seconds=$((SECONDS - began))
    echo "== $section: $seconds s =="
    result=$(grep -m1 -o 'SKIPPED: .*' "$work/output") || result=passed
    results+="| $section | $result | $seconds s |"$'\n'
done
# The results of a part say nothing about the rest.
if [[ ${BLESS-} && $* == "${sections[*]}" ]]; then
    PYTHONPATH=tests/interop/clients python3 - "$(date -u +%F)" "$(nproc)" "$results" <<'END'
import pathlib, sys, table
date, cores, rows = sys.argv[1:]
text = f"Last run on {date}, on {cores} cores.\n\n| Section | Result | Time |\n|---|---|---|\n{rows.rstrip()}"
table.replace(pathlib.Path("docs/clients.md"), "run", text)
END
fi
