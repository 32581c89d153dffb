#!/bin/bash
# Applies the rendered manifests to a real API server with Pod Security `restricted` enforced, and creates a pod from each of
# their templates. Skipped if tests/interop/controlplane/build.sh has not built the API server.
#
# usage: deploy/apply.sh DIRECTORY HELM     as deploy/check.sh renders it
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
controlplane=$here/../tests/interop/controlplane
"$controlplane/build.sh" --built || { echo "SKIPPED: kube-apiserver is not built; tests/interop/run.sh controlplane builds it"; exit; }
rendered=$(realpath "$1")
helm=$(realpath "$2")
work=$(mktemp -d)
trap '"$controlplane/stop.sh" "$work"; rm -rf "$work"' EXIT
fail() { echo "$*" >&2; exit 1; }
"$controlplane/start.sh" "$work"
cd "$work"
k() { kubectl --kubeconfig admin.kubeconfig "$@"; }

for namespace in argocd kueue-system headlamp fleet other-fleet; do
    k create namespace "$namespace" >/dev/null
    k label namespace "$namespace" pod-security.kubernetes.io/enforce=restricted >/dev/null
done
# The chart makes an object of the Prometheus Operator. Its schema is not checked here.
k apply --filename - >/dev/null <<'CRD'
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podmonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: PodMonitor, plural: podmonitors, singular: podmonitor}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
CRD
k wait --for condition=Established crd/podmonitors.monitoring.coreos.com --timeout 60s >/dev/null
apply() { k apply --server-side --validate=true --force-conflicts --filename "$1" >/dev/null; }
for file in example argocd kueue helm helm-image helm-every example-more; do apply "$rendered/$file.yaml"; done
apply "$here/examples/headlamp/manifests.yaml"

# pods: one of each template, and at the end one that is not restricted.
python3 - "$rendered" "$here/examples/headlamp/values.yaml" >pods <<'PODS'
import copy, json, pathlib, sys, yaml
pods = []
def pod(name, namespace, spec):
    metadata = {"name": name, "namespace": namespace}
    pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": copy.deepcopy(spec)})
for file in ("example", "argocd", "kueue", "helm-image", "helm-every", "example-more"):
    for document in yaml.safe_load_all(pathlib.Path(sys.argv[1], file + ".yaml").read_text()):
        if document and document["kind"] in ("Deployment", "StatefulSet"):
            metadata = document["metadata"]
            pod(f"{file}-{metadata['name']}", metadata["namespace"], document["spec"]["template"]["spec"])
values = yaml.safe_load(pathlib.Path(sys.argv[2]).read_text())
plugin = values["config"]["clusterInventory"]["plugins"][0]
client = {key: values[key] for key in ("env", "volumeMounts", "securityContext")} | {"name": "headlamp", "image": "headlamp"}
volumes = values["volumes"] + [{"name": plugin["name"] + "-plugin", "image": {"reference": plugin["image"]}}]
pod("headlamp", "headlamp", {"serviceAccountName": "headlamp", "initContainers": values["initContainers"],
                             "volumes": volumes, "containers": [client]})
pod("not-restricted", pods[0]["metadata"]["namespace"], pods[0]["spec"])
del pods[-1]["spec"]["containers"][0]["securityContext"]["seccompProfile"]
print(*map(json.dumps, pods), sep="\n")
PODS
created=0
while read -r pod; do
    if k apply --server-side --validate=true --filename - <<<"$pod" >out 2>&1; then
        ((created += 1))
        continue
    fi
    [[ $pod == *'"not-restricted"'* ]] && grep -q 'violates PodSecurity "restricted' out || fail "$(cat out)"
    refused=yes
done <pods
[[ ${refused-} == yes && $created == 9 ]] || fail "$created pods were created"

# What the ServiceAccount may do in the hub, and nothing else.
may() { # VERB RESOURCE
    jq -n --arg verb "$1" --arg resource "$2" '{apiVersion: "authorization.k8s.io/v1", kind: "SubjectAccessReview", spec: {
        user: "system:serviceaccount:controllers:controller", resourceAttributes:
        {namespace: "fleet", verb: $verb, group: "multicluster.x-k8s.io", resource: $resource}}}' |
        k create --raw /apis/authorization.k8s.io/v1/subjectaccessreviews --filename - | jq .status.allowed
}
rights=$(for verb in list watch get update; do may "$verb" clusterprofiles; done | paste -s -d ' ')
[[ $rights == "true true false false" && $(may list secrets) == false ]] || fail "list, watch, get, update: $rights"
mkdir identities
python3 -B "$here/identities/admission.py" "$helm" "$work/admin.kubeconfig" "$work/identities"
echo "a real API server takes them, and $created pods with restricted Pod Security"
