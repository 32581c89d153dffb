#!/bin/bash
# Runs the manifests of deploy/ on a real Kubernetes node, with the images of deploy/images. Each case is a script in cases/.
# Skipped, with the reason, where a node cannot run.
#
# usage: test.sh [CASE...]
#   NODE_MINUTES                   how long the controllers run side by side (1)
#   CONTROLPLANE, NODE_PROGRAMS    where the programs of Kubernetes and of the node are kept
#   KEEP                           a directory that stays, with the logs
set -euo pipefail
node=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(realpath "$node/../../..")
skip() { echo "SKIPPED: a real node: $*"; exit; }
reason=$("$node/supported.sh") || skip "$reason"
for program in buildah debootstrap jq; do command -v "$program" >/dev/null || skip "this machine has no $program"; done

"$node/build.sh"
arch=$(dpkg --print-architecture)
programs=$root/target/dist/$arch
[[ -x $programs/credbroker && -x $programs/credbroker-exec ]] || "$root/.ci/static" "$arch"
images=$root/target/images
[[ -e $images/credbroker-exec-0.1.0.tar && ! $programs/credbroker -nt $images/credbroker-0.1.0.tar &&
    ! $programs/credbroker-exec -nt $images/credbroker-exec-0.1.0.tar ]] || "$root/deploy/images/build.sh" "$programs"
"$node/images.sh"

FOLDER=${KEEP:-$(mktemp -d -t credbroker-node.XXXXXX)}
export FOLDER
ended() {
    local code=$?
    # `timeout` sends its signal twice, to this process and to its group.
    trap '' HUP INT TERM
    "$node/stop.sh" "$FOLDER" || code=1
    [[ -n ${KEEP-} ]] || rm -rf "$FOLDER"
    exit $code
}
trap ended EXIT
trap 'exit 143' HUP INT TERM
began=$SECONDS
"$node/start.sh" "$FOLDER"
echo "a node is ready after $((SECONDS - began)) s"
"$node/hub.sh"
"$node/enter.sh" "$FOLDER" "$node/events.sh" "$FOLDER" >"$FOLDER/log/events.log" 2>&1 &
disown
(($#)) || set -- quickstart example streams helm scratch mistakes liveness kueue argocd headlamp controllers proxy
for case; do
    printf '\n-- %s\n' "$case"
    began=$SECONDS
    "$node/cases/$case.sh"
    echo "-- $case: $((SECONDS - began)) s"
done
