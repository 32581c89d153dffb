#!/bin/bash
# The static image has no /tmp: the broker says at start what to mount, and works once it is mounted.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
restricted scratch
k create configmap credbroker --namespace scratch --from-file "$node/manifests/scratch/config.yaml" >/dev/null
k apply --server-side --filename "$node/manifests/scratch/pod.yaml" >/dev/null
status=.status.initContainerStatuses[0]
k wait --namespace scratch pod/scratch --for "jsonpath={$status.lastState.terminated.exitCode}=1" --timeout 60s >/dev/null ||
    fail "the broker did not end: $(k get --namespace scratch pod/scratch --output jsonpath="{$status}")"
message=$(k get --namespace scratch pod/scratch --output jsonpath="{$status.lastState.terminated.message}")
[[ $message == *"in /tmp: No such file or directory"*"mount a writable volume there, such as an emptyDir"* ]] ||
    fail "it says: $message"
[[ $(k get --namespace scratch pod/scratch --output jsonpath='{.status.containerStatuses[0].started}') == false ]] ||
    fail "the client started without a broker"
echo "without /tmp: $(tail -n 1 <<<"$message")"
k delete --namespace scratch pod/scratch --timeout 60s >/dev/null

sed 's/# *with-tmp: //' "$node/manifests/scratch/pod.yaml" | k apply --server-side --filename - >/dev/null
k wait --namespace scratch pod/scratch --for condition=Ready --timeout 60s >/dev/null
until_logged scratch pod/scratch controller "request 1 succeeded"
k delete namespace scratch --timeout 60s >/dev/null
