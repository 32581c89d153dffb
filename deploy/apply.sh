#!/bin/bash
# Applies the rendered manifests to a real API server with Pod Security `restricted` enforced, and creates a pod from each of
# their templates. KUBE_APISERVER and ETCD name the programs; skipped without them.
#
# usage: deploy/apply.sh DIRECTORY     as deploy/check.sh renders it
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[[ -n ${KUBE_APISERVER-} && -n ${ETCD-} ]] || { echo "SKIPPED: KUBE_APISERVER and ETCD do not name programs"; exit; }
rendered=$(realpath "$1")
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
fail() { echo "$*" >&2; exit 1; }
read -r port client peer < <(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(s.getsockname()[1] for s in sockets))')

cd "$work"
key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key" 2>/dev/null; }
for name in ca server admin; do key "$name"; done
openssl genpkey -algorithm RSA -out accounts.key 2>/dev/null
openssl req -x509 -new -key ca.key -subj /CN=ca -days 2 -out ca.pem
signed() { # NAME SUBJECT EXTENSION
    openssl req -new -key "$1.key" -subj "$2" |
        openssl x509 -req -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile <(echo "$3") -out "$1.pem" 2>/dev/null
}
signed server /CN=kube-apiserver subjectAltName=IP:127.0.0.1
signed admin /O=system:masters/CN=admin basicConstraints=CA:FALSE
"$ETCD" --data-dir "$work/etcd" --unsafe-no-fsync --listen-client-urls "http://127.0.0.1:$client" \
    --advertise-client-urls "http://127.0.0.1:$client" --listen-peer-urls "http://127.0.0.1:$peer" \
    --initial-advertise-peer-urls "http://127.0.0.1:$peer" --initial-cluster "default=http://127.0.0.1:$peer" >etcd.log 2>&1 &
# Without a controller manager no namespace has its default ServiceAccount, which that admission plugin asks for.
"$KUBE_APISERVER" --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port="$port" \
    --etcd-servers="http://127.0.0.1:$client" --tls-cert-file=server.pem --tls-private-key-file=server.key \
    --client-ca-file=ca.pem --authorization-mode=RBAC --disable-admission-plugins=ServiceAccount \
    --service-account-issuer=https://kubernetes.default --service-account-key-file=accounts.key \
    --service-account-signing-key-file=accounts.key --service-cluster-ip-range=10.0.0.0/24 \
    --endpoint-reconciler-type=none >apiserver.log 2>&1 &
k() {
    kubectl --kubeconfig /dev/null --server "https://127.0.0.1:$port" --certificate-authority ca.pem \
        --client-certificate admin.pem --client-key admin.key "$@"
}
tries=0
until k get --raw /readyz >/dev/null 2>&1; do
    ((tries += 1)) && ((tries < 240)) || { tail -n 5 apiserver.log >&2; fail "the API server is not ready"; }
    sleep 0.5
done

for namespace in argocd kueue-system headlamp fleet; do
    k create namespace "$namespace" >/dev/null
    k label namespace "$namespace" pod-security.kubernetes.io/enforce=restricted >/dev/null
done
apply() { k apply --server-side --validate=true --force-conflicts --filename "$1" >/dev/null; }
for file in example argocd kueue helm helm-image; do apply "$rendered/$file.yaml"; done
apply "$here/examples/headlamp/manifests.yaml"

# pods: one of each template, and at the end one that is not restricted.
python3 - "$rendered" "$here/examples/headlamp/values.yaml" >pods <<'PODS'
import copy, json, pathlib, sys, yaml
pods = []
def pod(name, namespace, spec):
    metadata = {"name": name, "namespace": namespace}
    pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": copy.deepcopy(spec)})
for file in ("example", "argocd", "kueue", "helm-image"):
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
[[ ${refused-} == yes && $created == 7 ]] || fail "$created pods were created"

# What the ServiceAccount may do in the hub, and nothing else.
may() { # VERB RESOURCE
    jq -n --arg verb "$1" --arg resource "$2" '{apiVersion: "authorization.k8s.io/v1", kind: "SubjectAccessReview", spec: {
        user: "system:serviceaccount:controllers:controller", resourceAttributes:
        {namespace: "fleet", verb: $verb, group: "multicluster.x-k8s.io", resource: $resource}}}' |
        k create --raw /apis/authorization.k8s.io/v1/subjectaccessreviews --filename - | jq .status.allowed
}
rights=$(for verb in list watch get update; do may "$verb" clusterprofiles; done | paste -s -d ' ')
[[ $rights == "true true false false" && $(may list secrets) == false ]] || fail "list, watch, get, update: $rights"
echo "a real API server takes them, and $created pods with restricted Pod Security"
