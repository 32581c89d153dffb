#!/bin/bash
# exec, attach and port-forward with client/go, over SPDY and over WebSocket: with a token, with a certificate and with both,
# each also through a proxy of the cluster.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
programs=$(cd "${NODE_PROGRAMS:-$root/target/node}" && pwd)
broker=$root/target/dist/$(dpkg --print-architecture)/credbroker
export CREDBROKER_SOCKET=$work/run/credbroker.sock
k create namespace streams >/dev/null
k apply --server-side --filename "$node/manifests/streams/pod.yaml" >/dev/null
{
    echo 'apiVersion: credbroker.io/v1alpha1'
    echo 'kind: BrokerConfig'
    echo "clusterProfiles: {kubeconfig: $FOLDER/controlplane/admin.kubeconfig, namespaces: [streams]}"
    echo 'providers:'
} >"$work/config.yaml"
profiles=()
for kind in token certificate both; do
    cat >>"$work/config.yaml" <<END
- name: $kind
  execConfig:
    apiVersion: client.authentication.k8s.io/v1
    command: $root/tests/interop/controlplane/plugin
    args: [$FOLDER/controlplane, $kind, streams-$kind, admins, "3600"]
    interactiveMode: Never
END
    for proxy in '' -proxy; do
        profiles+=("$kind$proxy")
        sed "s/name: local, namespace: fleet/name: $kind$proxy, namespace: streams/; s/name: gke/name: $kind/" "$node/manifests/hub.yaml" |
            { if [[ $proxy ]]; then sed 's#\( *\)server: .*#&\n\1proxy-url: http://127.0.0.1:3129#'; else cat; fi; } | profile
    done
done
chmod 600 "$work/config.yaml"
on_node "$broker" serve --config "$work/config.yaml" --socket "$CREDBROKER_SOCKET" >"$work/broker.log" 2>&1 &
for ((attempt = 0; ; attempt++)); do
    ! "$broker" healthcheck 2>"$work/health" || break
    ((attempt < 300)) || fail "the broker does not answer: $(cat "$work/health"; tail -n 5 "$work/broker.log")"
    sleep 0.1
done
k wait --namespace streams pod/echo --for condition=Ready --timeout 120s >/dev/null ||
    fail "the pod is not ready: $(k get events --namespace streams | tail -n 5)"
on_node "$programs/bin/streams" client streams "${profiles[@]}" | tee "$work/streams"
# Who the API server saw: the user of the credential, twice for each stream and way.
for kind in token certificate both; do
    for stream in exec attach portforward; do
        seen=$(jq -r --arg user "streams-$kind" --arg stream "$stream" \
            'select(.user.username == $user and .objectRef.subresource == $stream) | .auditID' "$FOLDER/controlplane/audit.log" | sort -u | wc -l)
        ((seen == 4)) || fail "the API server has seen $seen requests of streams-$kind for $stream, and not 4"
    done
done
k delete namespace streams --timeout 60s >/dev/null
