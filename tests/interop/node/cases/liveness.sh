#!/bin/bash
# The liveness probe: a broker that hangs is killed and started again, which takes the probe's three periods and the pod's grace
# period.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
namespace=liveness broker='.status.initContainerStatuses[?(@.name=="credbroker")]'
chart $namespace controller
rolled_out $namespace deployment/controller
pod=$(pod_of $namespace app.kubernetes.io/name=controller)
until_logged $namespace "$pod" controller "request 1 succeeded"
container=$(k get --namespace $namespace "$pod" --output jsonpath="{$broker.containerID}")
began=$SECONDS
ctr tasks kill --signal SIGSTOP "${container#containerd://}" 2>/dev/null
k wait --namespace $namespace "$pod" --for "jsonpath={$broker.restartCount}=1" --timeout 180s >/dev/null ||
    fail "a broker that hangs is not started again: $(k get events --namespace $namespace | tail -n 3)"
echo "a broker that hangs is started again after $((SECONDS - began)) s"
until_logged $namespace "$pod" controller "request [1-9][0-9][0-9]* succeeded"
k delete namespace $namespace --timeout 60s >/dev/null
