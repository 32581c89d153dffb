#!/bin/bash
# Starts a Kubernetes node with its control plane, in separate namespaces and cgroups: nothing of the machine is changed, and
# the end of one process ends all of it. Returns when the node is ready. build.sh and images.sh make what it runs.
# Exits with 77, and says why, where a node cannot run.
#
# usage: start.sh DIRECTORY
#   DIRECTORY/controlplane     see ../controlplane/start.sh
#   DIRECTORY/log              the programs of the node
# enter.sh runs a command on the node, and stop.sh ends it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$here/supported.sh" || exit
mkdir -p "$1"
folder=$(cd "$1" && pwd)
programs=$(cd "${NODE_PROGRAMS:-$here/../../../target/node}" && pwd)
controlplane=$(cd "${CONTROLPLANE:-$here/../../../target/controlplane}" && pwd)
mkdir -p "$folder/processes"
. "$here/../controlplane/common.sh"
! running node || { echo "a node runs in $folder" >&2; exit 1; }

# A cgroup of the node below the one that this script is in, so the limits of that one hold.
: >"$folder/cgroups"
while IFS=: read -r _ controllers path; do
    parent=/sys/fs/cgroup/${controllers#name=}${path%/}
    [[ -n $controllers ]] || continue
    cgroup=$parent/$(basename "$folder")
    mkdir -p "$cgroup"
    echo "$cgroup" >>"$folder/cgroups"
    [[ $controllers != *cpuset* ]] || for file in cpuset.cpus cpuset.mems; do cat "$parent/$file" >"$cgroup/$file"; done
done </proc/self/cgroup

rm -f "$folder/started"
mkfifo "$folder/started"
exec {started}<>"$folder/started"
# shellcheck disable=SC2016
launch node bash -c '
    while read -r cgroup; do echo $$ >"$cgroup/cgroup.procs"; done <"$1/cgroups"
    exec unshare --mount --net --pid --cgroup --uts --ipc --fork --kill-child --mount-proc "${@:2}"' - "$folder" \
    "$here/inner.sh" "$folder" "$programs" "$controlplane"
state=
read -r -t 300 -u "$started" state || true
if [[ $state != ready ]]; then
    tail -n 5 "$folder/node.log" >&2
    "$here/stop.sh" "$folder"
    echo "start.sh: the node is not ready; see $folder/node.log and $folder/log" >&2
    exit 1
fi
