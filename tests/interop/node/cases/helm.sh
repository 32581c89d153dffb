#!/bin/bash
# The chart, with the shim from an image volume; then the same pod in a user namespace (`hostUsers: false`).
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
namespace=chart
chart $namespace controller --set shim=image
rolled_out $namespace deployment/controller
pod=$(pod_of $namespace app.kubernetes.io/name=controller)
[[ $(k get --namespace $namespace "$pod" --output jsonpath='{.spec.volumes[?(@.name=="credbroker-exec")].image.reference}') == \
    credbroker-exec:0.1.0 ]] || fail "the shim is not an image volume"
until_logged $namespace "$pod" controller "request 1 succeeded"
echo "the shim runs from an image volume"

k patch deployment controller --namespace $namespace --type merge \
    --patch '{"spec": {"template": {"spec": {"hostUsers": false}}}}' >/dev/null
if ! timeout 90 "$node/enter.sh" "$FOLDER" kubectl rollout status --namespace $namespace deployment/controller >/dev/null; then
    # The kernel has to map the ids of every file system of the pod, and the runtime has to use that.
    reason=$(k get events --namespace $namespace --field-selector type=Warning --output json | jq -r '[.items[].message] | last')
    [[ $reason == *"user namespace"* || $reason == *idmap* || $reason == *"mount_setattr"* ]] || fail "hostUsers: false: $reason"
    echo "SKIPPED: hostUsers: false: $reason"
    k delete namespace $namespace --timeout 60s >/dev/null
    exit
fi
k wait --namespace $namespace --for delete "$pod" --timeout 60s >/dev/null
pod=$(pod_of $namespace app.kubernetes.io/name=controller)
until_logged $namespace "$pod" controller "request 1 succeeded"
uid=$(on_node stat --format %u "/proc/$(process_of $namespace "$pod" controller)")
((uid > 65535)) || fail "uid 65532 of the pod is uid $uid of the node"
echo "hostUsers: false: uid 65532 of the pod is uid $uid of the node, and its first request succeeds"
k delete namespace $namespace --timeout 60s >/dev/null
