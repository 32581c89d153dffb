#!/bin/bash
# kubectl through the proxy, at the port and in a sandbox without a network: each command, with rotations, restarts, unread
# streams and evictions; and no credential in any client.
#
# usage: proxy.sh [PART...]     the parts are the scripts that ../proxy/run.sh sources
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
k create namespace proxy >/dev/null
for kind in token certificate; do
    sed "s/name: local, namespace: fleet/name: $kind, namespace: proxy/; s/name: gke/name: $kind/" "$node/manifests/hub.yaml" | profile
done
k apply --server-side --filename "$node/manifests/proxy/pods.yaml" >/dev/null
k wait --namespace proxy pod --all --for condition=Ready --timeout 120s >/dev/null ||
    fail "the pods are not ready: $(k get events --namespace proxy | tail -n 5)"
on_node env FOLDER="$FOLDER" PROGRAMS="${PROGRAMS:-$root/target/dist/$(dpkg --print-architecture)}" "$node/proxy/run.sh" "$@"
k delete namespace proxy --timeout 60s >/dev/null
