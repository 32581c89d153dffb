#!/bin/bash
# Runs a command on a node, with kubectl and ctr pointed at it.
#
# usage: enter.sh DIRECTORY COMMAND...
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(cd "$1" && pwd)
shift
. "$here/../controlplane/common.sh"
running node || { echo "no node runs in $folder" >&2; exit 1; }
read -r parent _ <"$folder/processes/node"
# The process that made the namespaces is in all of them but that of the processes, in which its child is the first.
first=$(cat "/proc/$parent/task/$parent/children")
programs=$(cd "${NODE_PROGRAMS:-$here/../../../target/node}" && pwd)
controlplane=$(cd "${CONTROLPLANE:-$here/../../../target/controlplane}" && pwd)
exec nsenter --target "${first% }" --mount --net --pid --uts --ipc --wdns="$PWD" env \
    PATH="$programs/bin:$controlplane/bin:$PATH" KUBECONFIG="$folder/controlplane/admin.kubeconfig" \
    CONTAINERD_NAMESPACE=k8s.io "$@"
