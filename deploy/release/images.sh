#!/bin/bash
# Puts the images of a release into a directory, as archives in the format of OCI, and their digests into the file images:
# the static broker and the shim, and with BASE (an image by its digest) the broker on that base.
#
# usage: [BASE=IMAGE] deploy/release/images.sh DIRECTORY PROGRAMS...     PROGRAMS as for deploy/images/build.sh
#   SOURCE_DATE_EPOCH    the time of the files in the archives, in seconds since 1970
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out=$1
built=$root/target/images
content=$(mktemp -d)
trap 'rm -rf "$content"' EXIT
rm -f "$built"/*.tar
"$root/deploy/images/build.sh" "${@:2}"
for archive in "$built"/*.tar; do
    name=$(basename "$archive" .tar)
    # credbroker-VERSION is on a base of this machine.
    [[ $name == credbroker-exec-* || $name == *-static || -n ${BASE-} ]] || continue
    # Packed again: the archives of buildah contain the time at which they were written.
    rm -rf "${content:?}"/*
    tar --extract --directory "$content" --file "$archive"
    tar --create --sort=name --mtime="@${SOURCE_DATE_EPOCH:-0}" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
        --directory "$content" --file "$out/image-$name.tar" blobs index.json oci-layout
    digest=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["manifests"][0]["digest"])' <"$content/index.json")
    echo "${name%%-[0-9]*}:${name#"${name%%-[0-9]*}"-}@$digest" >>"$out/images"
done
