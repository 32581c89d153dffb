#!/bin/bash
# deploy/examples/argocd: a client in the place of the application controller and of the server uses the cluster's Secret.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
restricted argocd
k apply --server-side --kustomize "$node/manifests/argocd" >/dev/null
for workload in statefulset/argocd-application-controller deployment/argocd-server; do
    rolled_out argocd "$workload"
    pod=$(pod_of argocd "app.kubernetes.io/name=${workload#*/}")
    until_logged argocd "$pod" "${workload#*/}" "request 1 succeeded"
    (($(issued "$pod") > 0)) || fail "the plugin of $pod did not run"
done
echo "uid 999 gets a credential by the cluster's Secret in both workloads; Argo CD's own program did not run"
k delete namespace argocd --timeout 60s >/dev/null
