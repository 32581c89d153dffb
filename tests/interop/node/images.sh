#!/bin/bash
# Makes the images that are imported into a node, with buildah: those that deploy/images/build.sh has built, and for the pods of
# the tests. Nothing of it runs here.
#
# usage: images.sh
#   NODE_PROGRAMS    the directory of build.sh, which gets images.tar (target/node)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(realpath "$here/../../..")
PATH=$PATH:/usr/local/go/bin
# buildah mounts its storage, which would stay mounted if this script was killed.
[[ ${HAS_OWN_MOUNTS-} ]] || HAS_OWN_MOUNTS=yes exec unshare --mount "$0" "$@"
built=$root/target/images
[[ -e $built/credbroker-exec-0.1.0.tar ]] ||
    { echo "images.sh: run deploy/images/build.sh first; there is nothing in $built" >&2; exit 1; }
programs=${NODE_PROGRAMS:-$root/target/node}
mkdir -p "$programs"
programs=$(cd "$programs" && pwd)
exec 9>"$programs/lock"
flock 9
work=$(mktemp -d --tmpdir="$programs")
trap 'rm -rf "$work"' EXIT
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >"$work/policy.json"
export BUILDAH_ISOLATION=chroot
b() { buildah --root "$programs/storage" --runroot "$work/run" "$@"; }
policy=(--signature-policy "$work/policy.json")

mkdir "$work/context"
CGO_ENABLED=0 nice go build -C "$here/programs/pods" -trimpath -buildvcs=false -ldflags "-s -w" -o "$work/context/" ./...
echo '#!/usr/bin/not-in-the-image' >"$work/context/script"
# All of them go into one OCI layout, so layers in common are there once.
layout=$work/layout
export_as() { b push --quiet "${policy[@]}" "$1" "oci:$layout:$1" >/dev/null; }
delivered() { # NAME TAG
    local id
    id=$(b pull --quiet "${policy[@]}" "oci-archive:$built/$1-$2.tar")
    b tag "$id" "docker.io/library/$1:$2"
    export_as "docker.io/library/$1:$2"
}
image() { # NAME
    b bud --quiet --pull-never "${policy[@]}" --timestamp 0 --target "$1" --tag "node.test/$1:1" --file "$here/Containerfile" \
        "$work/context" >/dev/null
    export_as "node.test/$1:1"
}
delivered credbroker 0.1.0
delivered credbroker 0.1.0-static
delivered credbroker-exec 0.1.0
cp "$programs/bin/kueue" "$work/context/"
# Clients on the node itself, too.
cp "$work/context/streams" "$work/context/controller" "$programs/bin/"
for name in pause controller streams credbroker-plugins credbroker-static-plugins kueue; do image "$name"; done
tar --create --file "$work/images.tar" --directory "$layout" .
mv "$work/images.tar" "$programs/images.tar"
# Those of an earlier call, which have no name now.
b rmi --prune >/dev/null
