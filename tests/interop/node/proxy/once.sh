#!/bin/bash
# One `kubectl exec` of many: prints its number if it fails.
#
# usage: once.sh NUMBER token|certificate
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
number=$1 kind=$2 way=${ways[$1 % 2]}
((number / 2 % 2)) || settings=(KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false)
said=$(kubectl_of "$way" "$kind" exec --stdin shell -- sh -c 'cat; sleep 1' <<<"$number") && [[ $said == "$number" ]] || {
    echo "$number"
    echo "exec $number, $way, $kind: $said" >&2
}
