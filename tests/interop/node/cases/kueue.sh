#!/bin/bash
# deploy/examples/kueue with Kueue's own manager and manifests: MultiKueue connects to the cluster of a ClusterProfile through the
# shim and the broker.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
restricted kueue-system
sed 's/namespace: fleet/namespace: kueue-system/' "$node/manifests/hub.yaml" | profile
module=$(go list -C "$node/programs/kueue" -m -f '{{.Dir}}' sigs.k8s.io/kueue)
cp "$node/manifests/kueue/kustomization.yaml" "$work"
sed -i "s#EXAMPLE#$(realpath --relative-to "$work" "$root/deploy/examples/kueue")#" "$work/kustomization.yaml"
k kustomize "$module/config/default" |
    python3 "$node/manifests/kueue/prepare.py" "$root/deploy/examples/kueue/manager-config.yaml" >"$work/kueue.yaml"
k apply --server-side --kustomize "$work" >/dev/null
k wait --for condition=Established customresourcedefinition/multikueueclusters.kueue.x-k8s.io --timeout 60s >/dev/null
rolled_out kueue-system deployment/kueue-controller-manager
pod=$(pod_of kueue-system control-plane=controller-manager)
k apply --server-side --filename "$node/manifests/kueue/cluster.yaml" >/dev/null
message() { k get multikueuecluster/local --output jsonpath='{.status.conditions[?(@.type=="Active")].message}'; }
k wait multikueuecluster/local --for condition=Active --timeout 120s >/dev/null ||
    fail "Kueue does not connect: $(message); $(k logs --namespace kueue-system --container manager --tail 5 "$pod")"
(($(issued "$pod") > 0)) || fail "the plugin did not run"
echo "Kueue's manager: $(message)"
k delete multikueuecluster/local --timeout 60s >/dev/null
k delete --kustomize "$work" --timeout 120s >/dev/null
k delete namespace kueue-system --timeout 60s >/dev/null
