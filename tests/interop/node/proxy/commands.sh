#!/bin/bash
# One command of kubectl through the proxy, and whether it does what it should.
#
# usage: commands.sh COMMAND T|U token|certificate websocket|SPDY|plain
# Its own process group, so that nothing that it starts is left.
[[ ${IS_LEADER-} ]] || IS_LEADER=yes exec setsid --wait "$0" "$@"
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
command=$1 way=$2 kind=$3 protocol=$4
[[ $protocol != SPDY ]] || settings=(KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false KUBECTL_PORT_FORWARD_WEBSOCKETS=false)
name=$command-${way,,}-$kind-${protocol,,}
home=$at/client inside=$at/client
[[ $way != U ]] || home=$at/sandbox inside=/home
kubectl() { kubectl_of "$way" "$kind" "$@"; }
equal() { [[ $1 == "$2" ]] || fail "$1 instead of $2"; }
# A line, and then nothing, for as long as this script runs.
said() { echo "$1"; exec sleep 50; }
trap 'trap "" TERM; kill -- -$$' EXIT

get() { kubectl get pods --output name | grep --quiet --line-regexp pod/shell; }
watch() {
    local numbers
    mapfile -t numbers < <(kubectl get configmap counter --namespace events --watch --output 'jsonpath={.data.number}{"\n"}' | head -n 4)
    ((numbers[3] == numbers[0] + 3)) || fail "not one after the other: ${numbers[*]}"
}
apply() {
    local object='{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "'$name'"}, "data": {"is": "'
    equal "$(kubectl apply --filename - <<<"${object}1\"}}")" "configmap/$name created"
    equal "$(kubectl apply --filename - <<<"${object}2\"}}")" "configmap/$name configured"
    equal "$(kubectl delete configmap "$name")" "configmap \"$name\" deleted from proxy namespace"
}
exec_() {
    local code=0
    equal "$(kubectl exec --stdin shell -- sed 's/^/it says /' <<<hello)" "it says hello"
    kubectl exec shell -- sh -c 'echo wrong >&2; exit 7' 2>"$home/$name" || code=$?
    equal "$code" 7
    grep -q '^wrong' "$home/$name"
}
attach() { grep --quiet --line-regexp "$name" < <(said "$name" | kubectl attach --stdin echo); }
cp_() {
    # More than the proxy holds of anything.
    head -c 8M /dev/urandom >"$home/$name"
    chmod 644 "$home/$name"
    kubectl cp "$inside/$name" "shell:/tmp/$name"
    kubectl cp "shell:/tmp/$name" "$inside/$name.back"
    cmp "$home/$name" "$home/$name.back"
    rm "$home/$name" "$home/$name.back"
}
portforward() {
    local line port
    exec 3< <(kubectl port-forward pod/echo :8080 2>&1)
    read -r -t 30 line <&3 || fail "no port"
    [[ $line =~ ^Forwarding\ from\ 127.0.0.1:([0-9]+) ]] || fail "$line"
    port=${BASH_REMATCH[1]}
    # Two connections, one after the other, in one tunnel.
    for turn in 1 2; do
        equal "$(client "$way" bash -c "exec 3<>/dev/tcp/127.0.0.1/$port; echo $name >&3; head -n 1 <&3")" "$name"
    done
}
logs() { equal "$(kubectl logs --follow chatty | head -n 2000 | wc -l)" 2000; }
debug() {
    grep --quiet --line-regexp "debug $name" < <(said "$name" | kubectl debug --stdin shell --profile general \
        --image docker.io/library/credbroker:0.1.0 --container "$name" -- sed --unbuffered 's/^/debug /')
}
proxy() {
    local line port
    exec 3< <(kubectl proxy --append-server-path --port 0)
    read -r -t 30 line <&3 || fail "no port"
    port=${line##*:}
    client "$way" curl --silent --show-error --fail --noproxy '*' "http://127.0.0.1:$port/api/v1/namespaces/proxy/pods/shell" |
        jq -e '.metadata.name == "shell"' >/dev/null
}
case $command in
    exec | cp) "${command}_" ;;
    port-forward) portforward ;;
    *) "$command" ;;
esac
