#!/bin/bash
# Prints the manifest of a release.
#
# usage: deploy/krew/render.sh VERSION DIRECTORY     DIRECTORY has the archives of the plugin, as .ci/release makes them
set -euo pipefail
version=$1 folder=$2
manifest=$(sed '1,/^apiVersion/ { /^#/d }' "$(dirname "${BASH_SOURCE[0]}")/credbroker.yaml")
for arch in amd64 arm64; do
    archive=$folder/kubectl-credbroker-$version-linux-$arch.tar.gz
    if [[ -e $archive ]]; then
        manifest=${manifest//SHA256-$arch/$(sha256sum "$archive" | cut -d ' ' -f 1)}
    else
        echo "SKIPPED: the manifest for krew has no checksum for $arch: $archive does not exist" >&2
    fi
done
echo "${manifest//VERSION/$version}"
