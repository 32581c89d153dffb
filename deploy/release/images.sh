#!/bin/bash
# Puts the images of a release into a directory, as archives in the format of OCI, and their digests into the file images:
# the static broker and the shim, and with BASE (an image by its digest) the broker on that base.
#
# usage: [BASE=IMAGE] deploy/release/images.sh DIRECTORY PROGRAMS...     PROGRAMS as for deploy/images/build.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
out=$1
built=$root/target/images
rm -f "$built"/*.tar
"$root/deploy/images/build.sh" "${@:2}"
for archive in "$built"/*.tar; do
    name=$(basename "$archive" .tar)
    # credbroker-VERSION is on a base of this machine.
    [[ $name == credbroker-exec-* || $name == *-static || -n ${BASE-} ]] || continue
    cp "$archive" "$out/image-$name.tar"
    digest=$(tar --extract --to-stdout --file "$archive" index.json | python3 -c 'import json, sys; print(json.load(sys.stdin)["manifests"][0]["digest"])')
    echo "${name%%-[0-9]*}:${name#"${name%%-[0-9]*}"-}@$digest" >>"$out/images"
done
