#!/bin/bash
# Ends a node, its pods and its control plane. The directory with the logs stays.
#
# usage: stop.sh DIRECTORY
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(cd "$1" && pwd)
. "$here/../controlplane/common.sh"
if running node; then
    read -r pid _ <"$folder/processes/node"
    # The first process of the namespaces ends with this one, and every other process with that.
    kill -9 "$pid"
fi
rm -f "$folder/processes/node"
touch "$folder/cgroups"
# A cgroup can be removed when its last process is gone.
end=$((SECONDS + 30))
while read -r cgroup; do
    until [[ ! -e $cgroup ]] || find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null; do
        ((SECONDS < end)) || { echo "stop.sh: $cgroup still has processes" >&2; exit 1; }
        sleep 0.1
    done
done <"$folder/cgroups"
