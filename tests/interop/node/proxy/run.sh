#!/bin/bash
# The case `proxy`, on the node: FOLDER is its directory, and PROGRAMS has credbroker and credbroker-exec.
#
# usage: run.sh [PART...]
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
ended() {
    local code=$? name
    trap '' HUP INT TERM
    ((code == 0)) || tail -n 5 "$at"/log/{proxy,broker,sandbox} >&2 || true
    for name in proxy broker; do
        [[ ! -e $at/$name.holder ]] || kill "$(cat "$at/$name.holder")" 2>/dev/null || true
    done
    # The first process of a namespace ends by no other signal.
    [[ ! -e $at/sandbox.pid ]] || kill -KILL $(cat "$at/sandbox.pid") 2>/dev/null || true
    kill $(jobs -p) 2>/dev/null || true
    wait
    rm -rf "$at" /run/credbroker /run/credbroker-proxy
    exit "$code"
}
trap ended EXIT
. "$here/setup.sh"
(($#)) || set -- matrix rotation readers restart evict canary
for part; do
    . "$here/$part.sh"
    began=$SECONDS
    "$part"
    echo "   $part: $((SECONDS - began)) s"
done
