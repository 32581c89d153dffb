#!/bin/bash
# Starts a Kubernetes control plane on loopback: etcd, a real kube-apiserver with RBAC, a client CA and an audit log, and the
# webhook that it asks about tokens (webhook.py). Returns when it is ready. Called again for the same directory, it starts what
# stop.sh has ended, with the same address and data. build.sh builds the programs.
#
# usage: start.sh DIRECTORY
#   DIRECTORY/admin.kubeconfig     a user who may do all; DIRECTORY/admin.pem and .key are its certificate
#   DIRECTORY/server, ca.pem       the URL, and the authority of its certificate and of its clients' (ca.key signs more)
#   DIRECTORY/tokens/              one file for each token, named like it: {"user": "ann", "groups": ["admins"], "expires": 1790000000}.
#                               Seconds since 1970; without `expires` it never expires. Removing the file revokes the token.
#                               The API server remembers a verdict for ten seconds.
#   DIRECTORY/audit.log, reviews.log, kube-apiserver.log, etcd.log, webhook.log
# The group `admins` may do all. The CRD of ClusterProfiles is installed.
#
#   CONTROLPLANE          the directory that build.sh filled
#   APISERVER_FLAGS       more flags of kube-apiserver, after the script's own: the last of two counts
#   SERVER_PORT           the API server's port, instead of a free one
#   SERVER_NAMES          more names of the server, as in IP:10.0.0.1,DNS:kubernetes.default
#   SERVICE_ACCOUNTS=1    there is a controller manager that makes service accounts, so pods can need theirs
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fail() { echo "start.sh: $*" >&2; exit 1; }
(($# == 1)) || fail "usage: start.sh FOLDER"
programs=${CONTROLPLANE:-$here/../../../target/controlplane}
"$here/build.sh" --built || fail "run tests/interop/controlplane/build.sh first: kube-apiserver is not built in $programs"
programs=$(cd "$programs" && pwd)
umask 077
mkdir -p "$1/tokens" "$1/processes"
folder=$(cd "$1" && pwd)
. "$here/common.sh"
cd "$folder"

signed() { # NAME SUBJECT EXTENSION
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" -subj "$2" 2>/dev/null |
        openssl x509 -req -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile <(echo "$3") -out "$1.pem" 2>/dev/null
}
if [[ ! -e accounts.key ]]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -subj /CN=controlplane -days 30 2>/dev/null
    signed server /CN=kube-apiserver "subjectAltName=IP:127.0.0.1,DNS:localhost${SERVER_NAMES:+,$SERVER_NAMES}"
    signed admin /O=system:masters/CN=admin extendedKeyUsage=clientAuth
    openssl genrsa -out accounts.key 2048 2>/dev/null
    cat >audit.yaml <<'AUDIT'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
AUDIT
fi

await() { # NAME COMMAND...: until the command succeeds, as long as the process runs, for two minutes
    local name=$1 end=$((SECONDS + 120))
    shift
    until "$@" 2>/dev/null; do
        running "$name" && ((SECONDS < end)) || return 1
        sleep 0.1
    done
}
request() { # PATH [ARGUMENT...]: as the administrator
    local path=$1
    shift
    curl --silent --show-error --fail --max-time 10 --noproxy '*' --cacert ca.pem --cert admin.pem --key admin.key \
        "$(cat server)$path" "$@"
}
ready() { [[ $(request /readyz) == ok ]]; }

if ! running webhook; then
    # It keeps its port when it starts again, since the API server reads the address once.
    launch webhook python3 "$here/webhook.py" "$folder"
    await webhook test -s webhook.port || fail "the webhook does not start: $(tail -n 5 webhook.log)"
    cat >webhook.kubeconfig <<WEBHOOK
apiVersion: v1
kind: Config
clusters: [{name: webhook, cluster: {server: "http://127.0.0.1:$(cat webhook.port)/"}}]
users: [{name: apiserver, user: {}}]
contexts: [{name: webhook, context: {cluster: webhook, user: apiserver}}]
current-context: webhook
WEBHOOK
fi

etcd() {
    launch etcd "$programs/bin/etcd" --data-dir "$folder/etcd" --unsafe-no-fsync --log-level error \
        --listen-client-urls "http://127.0.0.1:$store" --advertise-client-urls "http://127.0.0.1:$store" \
        --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
        --initial-cluster "default=http://127.0.0.1:$peer"
    await etcd curl --silent --fail --max-time 5 --noproxy '*' --output /dev/null "http://127.0.0.1:$store/health"
}
apiserver() {
    local admission=(--disable-admission-plugins=ServiceAccount)
    # Without a controller manager no namespace has its default ServiceAccount, which that admission plugin asks for.
    [[ -z ${SERVICE_ACCOUNTS-} ]] || admission=()
    # shellcheck disable=SC2086
    launch kube-apiserver "$programs/bin/kube-apiserver" --bind-address=127.0.0.1 --advertise-address=127.0.0.1 \
        --secure-port="$port" --etcd-servers="http://127.0.0.1:$store" --endpoint-reconciler-type=none \
        --tls-cert-file=server.pem --tls-private-key-file=server.key --client-ca-file=ca.pem \
        --authorization-mode=RBAC "${admission[@]}" --service-cluster-ip-range=10.0.0.0/24 \
        --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=accounts.key \
        --service-account-signing-key-file=accounts.key \
        --authentication-token-webhook-config-file=webhook.kubeconfig --authentication-token-webhook-version=v1 \
        --authentication-token-webhook-cache-ttl=0s \
        --audit-policy-file=audit.yaml --audit-log-path=audit.log --audit-log-mode=blocking ${APISERVER_FLAGS-}
    await kube-apiserver ready
}
if [[ ! -e ports ]]; then
    # The kernel chooses free ports, but another process can take one before it is used.
    for attempt in 1 2 3; do
        read -r store peer port < <(python3 -c '
import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
print(*(s.getsockname()[1] for s in sockets))')
        port=${SERVER_PORT:-$port}
        rm -rf etcd
        echo "https://127.0.0.1:$port" >server
        if etcd && apiserver; then
            echo "$store $peer $port" >ports
            break
        fi
        finish kube-apiserver
        finish etcd
        ((attempt < 3)) || { tail -n 5 etcd.log kube-apiserver.log >&2; fail "the API server is not ready"; }
    done
    cat >admin.kubeconfig <<KUBECONFIG
apiVersion: v1
kind: Config
clusters: [{name: controlplane, cluster: {server: "$(cat server)", certificate-authority-data: $(base64 -w0 ca.pem)}}]
users: [{name: admin, user: {client-certificate-data: $(base64 -w0 admin.pem), client-key-data: $(base64 -w0 admin.key)}}]
contexts: [{name: admin, context: {cluster: controlplane, user: admin}}]
current-context: admin
KUBECONFIG
    apply() { # PATH FILE
        request "$1?fieldManager=start&force=true" --request PATCH --header 'Content-Type: application/apply-patch+yaml' \
            --data-binary "@$2" --output /dev/null
    }
    binding=rbac.authorization.k8s.io/v1
    cat >admins.yaml <<ADMINS
apiVersion: $binding
kind: ClusterRoleBinding
metadata: {name: admins}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: admins}]
ADMINS
    apply "/apis/$binding/clusterrolebindings/admins" admins.yaml
    apply /apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterprofiles.multicluster.x-k8s.io "$programs/clusterprofiles.yaml"
else
    read -r store peer port <ports
    running etcd || etcd || { tail -n 5 etcd.log >&2; fail "etcd is not ready"; }
    running kube-apiserver || apiserver || { tail -n 5 kube-apiserver.log >&2; fail "the API server is not ready"; }
fi
served() { request /apis/multicluster.x-k8s.io/v1alpha1/clusterprofiles --output /dev/null; }
await kube-apiserver served || fail "the API server does not serve ClusterProfiles"
