# Sourced by the cases: FOLDER is the directory of the running node.
set -euo pipefail
node=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(realpath "$node/../../..")
work=$(mktemp -d)
trap 'trap "" HUP INT TERM; kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

fail() { echo "FAILED: $*" >&2; exit 1; }
on_node() { "$node/enter.sh" "$FOLDER" "$@"; }
k() { on_node kubectl "$@"; }
ctr() { on_node ctr "$@"; }
# Lines that a container's log gets until it has one that matches, for two minutes.
until_logged() { # NAMESPACE POD CONTAINER PATTERN
    timeout 120 grep --max-count 1 "$4" < <(k logs --namespace "$1" --container "$3" --follow "$2" 2>&1) ||
        fail "$2, container $3: not in its log: $4; it ends: $(k logs --namespace "$1" --container "$3" --tail 3 "$2" 2>&1)"
}
pod_of() { # NAMESPACE LABEL
    k get pods --namespace "$1" --selector "$2" --field-selector status.phase=Running --output name | head -n 1
}
# The process of a container, on the node.
process_of() { # NAMESPACE POD CONTAINER
    local container
    container=$(k get --namespace "$1" "$2" --output jsonpath="{.status.containerStatuses[?(@.name==\"$3\")].containerID}")
    ctr tasks list 2>/dev/null | awk -v id="${container#containerd://}" '$1 == id { print $2 }'
}
rolled_out() { # NAMESPACE WORKLOAD
    k rollout status --namespace "$1" "$2" --timeout 120s >/dev/null ||
        fail "$2 is not ready: $(k get pods --namespace "$1" --output wide; k get events --namespace "$1" | tail -n 5)"
}
# How often the plugins of a pod got a token.
issued() { # POD
    grep -c " ${1#pod/}\$" "$FOLDER/controlplane/issued.log" || true
}
until_issued() { # POD TIMES
    local log=$FOLDER/controlplane/issued.log
    timeout 120 grep --max-count "$2" " ${1#pod/}\$" < <(tail --pid $$ --lines +1 --follow "$log") >"$work/issued" ||
        fail "$1 has $(issued "$1") tokens, not $2"
}
# Renders the chart for a namespace, with the images of the node, and applies it. Pod Security is enforced there.
chart() { # NAMESPACE NAME [ARGUMENT...]
    local namespace=$1 name=$2
    shift 2
    [[ -x $root/target/tools/helm ]] ||
        GOBIN=$root/target/tools go install -buildvcs=false helm.sh/helm/v3/cmd/helm@v3.18.6
    "$root/target/tools/helm" template "$name" "$root/deploy/helm/credbroker" --namespace "$namespace" --kube-version 1.35.0 \
        --values "$node/manifests/chart/values.yaml" --set workload.name="$name" "$@" >"$work/$name.yaml"
    restricted "$namespace"
    k apply --server-side --force-conflicts --filename "$work/$name.yaml" >/dev/null
}
restricted() { # NAMESPACE
    ! k get namespace "$1" >/dev/null 2>&1 || return 0
    k create namespace "$1" >/dev/null
    k label namespace "$1" pod-security.kubernetes.io/enforce=restricted >/dev/null
}
kill_broker() { # NAMESPACE POD: returns when it has started again
    local container status='.status.initContainerStatuses[?(@.name=="credbroker")]'
    container=$(k get --namespace "$1" "$2" --output jsonpath="{$status.containerID}")
    ctr tasks kill --signal SIGKILL "${container#containerd://}" 2>/dev/null
    k wait --namespace "$1" "$2" --for "jsonpath={$status.restartCount}=1" --timeout 60s >/dev/null
}
profile() { # creates the ClusterProfile on standard input
    sed "s/\(certificate-authority-data\): CA/\1: $(base64 -w0 "$FOLDER/controlplane/ca.pem")/" >"$work/profile.yaml"
    k apply --server-side --filename "$work/profile.yaml" >/dev/null
    k apply --server-side --subresource status --filename "$work/profile.yaml" >/dev/null
}
