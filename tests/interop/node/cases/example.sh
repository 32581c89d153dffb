#!/bin/bash
# deploy/kubernetes/example: clients of three kinds lose no request and no event while credentials rotate, the broker is killed
# and the pod is deleted, and the ConfigMap's change is followed.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
echo 15 >"$FOLDER/controlplane/lifetime"
k apply --server-side --force-conflicts --kustomize "$node/manifests/example" >/dev/null
rolled_out controllers deployment/controller
pod=$(pod_of controllers app.kubernetes.io/name=controller)
for client in controller shim broker; do
    k logs --namespace controllers --container "$client" --follow "$pod" >"$work/$client" 2>&1 &
done

until_logged controllers "$pod" controller "request 1 succeeded"
for client in controller:65532 stranger:65533; do
    process=$(process_of controllers "$pod" "${client%:*}")
    [[ $(on_node stat --format %u "/proc/$process") == "${client#*:}" ]] || fail "${client%:*} has another uid"
    # Root may write everywhere but on a read-only mount.
    ! on_node touch "/proc/$process/root/run/credbroker/x" 2>"$work/refused" && grep -q 'Read-only' "$work/refused" ||
        fail "${client%:*} can write beside the socket: $(cat "$work/refused")"
done
echo "the first request succeeds, under the client's own uid and on a read-only mount"

# The same pod with a broker that begins to listen after six seconds. Times of containers are whole seconds.
k get --namespace controllers deployment/controller --output json | jq '.spec.template.spec as $spec | {
    apiVersion: "v1", kind: "Pod", metadata: {name: "late", namespace: "controllers"}, $spec} |
    .spec.containers |= .[:1] | (.spec.initContainers[] | select(.name == "credbroker") | .command) =
    ["/bin/sh", "-c", "sleep 6; exec /usr/bin/credbroker \"$@\"", "-"]' | k create --filename - >/dev/null
k wait --namespace controllers pod/late --for condition=Ready --timeout 60s >/dev/null || fail "the late broker is not ready"
waited=$(k get --namespace controllers pod/late --output json | jq '.status |
    (.containerStatuses[0].state.running.startedAt | fromdate) -
    (.initContainerStatuses[] | select(.name == "credbroker") | .state.running.startedAt | fromdate)')
((waited >= 5)) || fail "a client started $waited s after the container of a broker that was not ready"
k delete --namespace controllers pod/late --grace-period 1 >/dev/null
echo "a client starts when the broker is ready: $waited s after its container"

! k run unrestricted --namespace controllers --image node.test/pause:1 >/dev/null 2>"$work/refused" ||
    fail "Pod Security is not enforced"
grep -q 'violates PodSecurity "restricted' "$work/refused" || fail "$(cat "$work/refused")"
until_logged controllers "$pod" stranger "PEER_DENIED"
echo "another uid of the pod gets none, without an access rule"

k get configmap credbroker --namespace controllers --output yaml |
    sed 's/uids: \[65532\]/uids: [65532, 65533]/' |
    k replace --filename - >/dev/null
until_logged controllers "$pod" stranger " succeeded"
echo "the broker follows the ConfigMap: the other uid gets one"

until_issued "$pod" 4
echo "credentials have rotated"

# The command in the documentation.
read -ra status < <(sed -n 's/^\$ kubectl //p' "$root/docs/kubernetes.md")
k "${status[@]}" >"$work/status"
grep -q '^hub  *ready' "$work/status" && grep -q '^gke (fleet/local)  .* valid ' "$work/status" || fail "$(cat "$work/status")"
echo "kubectl exec shows the broker's status"

runs=$(issued "$pod")
kill_broker controllers "$pod"
until_issued "$pod" $((runs + 1))
echo "the killed broker is back"

k delete --namespace controllers "$pod" --timeout 60s >/dev/null
wait
for client in controller shim broker; do
    report=$(tail -n 1 "$work/$client")
    echo "$client: $report"
    jq -e '.requests > 20 and .failed == 0 and .lost == 0 and (.via == "command" or .events > 20)' >/dev/null <<<"$report" ||
        fail "$client lost something: $(tail -n 5 "$work/$client")"
done
k delete namespace controllers --timeout 60s >/dev/null
