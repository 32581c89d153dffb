#!/bin/bash
# Requests one after the other until FILE.stop exists: FILE gets a line for each, and FILE.failed what failed.
#
# usage: load.sh FILE T|U token|certificate kubectl|curl
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
file=$1 way=$2 kind=$3
request() { kubectl_of "$way" "$kind" get configmap counter --namespace events --output name; }
[[ $4 == kubectl ]] || request() {
    # Without kubectl's and Go's second attempts.
    client U curl --silent --show-error --fail --max-time 60 --noproxy '*' --output /dev/null --write-out '%{http_code}' \
        --unix-socket /run/credbroker-proxy/sandbox/proxy.sock "http://localhost/clusters/proxy/$kind/api/v1/namespaces/events/configmaps/counter"
}
while [[ ! -e $file.stop ]]; do
    began=$(date +%s%N)
    said=$(request 2>&1) || echo "$(date +%T.%3N) after $((($(date +%s%N) - began) / 1000000)) ms: $said" >>"$file.failed"
    echo $((($(date +%s%N) - began) / 1000000)) >>"$file"
done
