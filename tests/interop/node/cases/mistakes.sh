#!/bin/bash
# What docs/kubernetes.md says under "When it does not work": each mistake shows what the table says. Others are in example.sh
# (no access rule) and scratch.sh (no volume at /tmp).
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
namespace=mistakes
stanza='{"apiVersion": "client.authentication.k8s.io/v1", "command": "/opt/credbroker/bin/credbroker-exec",
    "args": ["--cluster-profile", "fleet/local"]}'
provider() { # COMMAND
    local version=client.authentication.k8s.io/v1
    echo "{\"name\": \"gke\", \"execConfig\": {\"apiVersion\": \"$version\", \"command\": \"$1\", \"interactiveMode\": \"Never\"}}"
}
install() { # [ARGUMENT...]: the chart with these, whose pods stay
    chart $namespace controller --set "workload.env[0].value=command" --set-literal "workload.env[4].value=$stanza" "$@"
}
restart() {
    k delete pods --namespace $namespace --all --grace-period 1 --timeout 60s >/dev/null
    pod=$(newest)
}
# The pod of the newest revision. A change that needs a restart is one, and the pod before it stays until the new one is ready.
newest() {
    local hash
    hash=$(k get replicasets --namespace $namespace --output json | jq --raw-output '
        .items | max_by(.metadata.annotations["deployment.kubernetes.io/revision"] | tonumber) |
        .metadata.labels["pod-template-hash"]')
    k get pods --namespace $namespace --selector "pod-template-hash=$hash" --output name
}
is_ready() { # POD
    k wait --namespace $namespace "$1" --for condition=Ready --timeout 60s >/dev/null || fail "$1 is not ready"
}
# The broker of the pod has ended with this code and message, and the client has not started.
ends() { # CODE PATTERN
    local broker='.status.initContainerStatuses[?(@.name=="credbroker")]' message
    k wait --namespace $namespace "$pod" --for "jsonpath={$broker.lastState.terminated.exitCode}=$1" --timeout 60s >/dev/null ||
        fail "the broker did not end with $1: $(k get --namespace $namespace "$pod" --output jsonpath="{$broker}")"
    message=$(k get --namespace $namespace "$pod" --output jsonpath="{$broker.lastState.terminated.message}")
    grep -q "$2" <<<"$message" || fail "exit code $1 with the message: $message"
    [[ $(k get --namespace $namespace "$pod" --output jsonpath='{.status.containerStatuses[0].started}') == false ]] ||
        fail "the client started without a broker"
    echo "exit code $1: $(tail -n 1 <<<"$message")"
}
# Another pod of the template, changed by a filter of jq.
variant() { # NAME FILTER
    k get --namespace $namespace deployment/controller --output json | jq --arg name "$1" --arg namespace $namespace \
        '.spec.template.spec as $spec | {apiVersion: "v1", kind: "Pod", metadata: {$name, $namespace}, $spec} | '"$2" |
        k create --filename - >/dev/null
    is_ready "pod/$1"
}

install
rolled_out $namespace deployment/controller
pod=$(pod_of $namespace app.kubernetes.io/name=controller)
until_logged $namespace "$pod" controller "request 1 succeeded"

install --set 'config.listn=x'
until_logged $namespace "$pod" credbroker 'config.yaml:[0-9]*:[0-9]*'
k exec --namespace $namespace "$pod" --container credbroker -- credbroker status >"$work/status"
grep -q 'config.yaml:[0-9]*:[0-9]*.*listn' "$work/status" || fail "status does not name the mistake: $(cat "$work/status")"
echo "a mistake in a changed ConfigMap is in the status of the broker"
restart
ends 78 '/etc/credbroker/config.yaml:[0-9]*:[0-9]*: .*listn'

install --set config.listen.sharedDirectory=false
restart
ends 1 sharedDirectory

install --set-json "config.providers=[$(provider absent)]"
restart
is_ready "$pod"
until_logged $namespace "$pod" controller '(PLUGIN_NOT_FOUND)'

install --set-json "config.providers=[$(provider script)]"
until_logged $namespace "$pod" controller '(SPAWN_FAILED)'

install
k delete rolebinding --namespace fleet "credbroker-$namespace-controller" >/dev/null
restart
is_ready "$pod"
until_logged $namespace "$pod" controller '(HUB_UNAVAILABLE)'
install

variant unmounted 'del(.spec.containers[0].volumeMounts[] | select(.name == "credbroker"))'
until_logged $namespace pod/unmounted controller 'exit status 69: '
variant other-uid '(.spec.containers[0].env[] | select(.name == "CREDBROKER_BROKER_UID") | .value) = "2002"'
until_logged $namespace pod/other-uid controller 'exit status 77: .* is not trusted'
k delete namespace $namespace --timeout 60s >/dev/null
