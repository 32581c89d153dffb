#!/bin/bash
# Ends what start.sh started, or some of it; start.sh starts it again. The directory and its data stay.
#
# usage: stop.sh DIRECTORY [kube-apiserver|etcd|webhook]...
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
(($#)) || { echo "usage: stop.sh FOLDER [kube-apiserver|etcd|webhook]..." >&2; exit 1; }
folder=$(cd "$1" && pwd)
shift
(($#)) || set -- kube-apiserver etcd webhook
. "$here/common.sh"
for name; do finish "$name"; done
