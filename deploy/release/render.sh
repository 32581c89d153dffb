#!/bin/bash
# Prints the installer of a release, or its notes.
#
# usage: deploy/release/render.sh install VERSION DIRECTORY     DIRECTORY has the archives, as .ci/release makes them
#        deploy/release/render.sh notes VERSION                 the section of CHANGELOG.md, or "Unreleased" if it has none
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fail() { echo "$*" >&2; exit 1; }
version=$2

install() {
    local script arch archive
    script=$(<"$here/install.sh")
    for arch in amd64 arm64; do
        archive=$1/credbroker-$version-linux-$arch.tar.gz
        [[ ! -e $archive ]] || script=${script//SHA256-$arch/$(sha256sum "$archive" | cut -d ' ' -f 1)}
    done
    printf '%s\n' "${script//VERSION/$version}"
}

# The lines below the heading, up to the next section.
section() { awk -v title="## $1" '/^## /{found = ($0 == title || index($0, title " ") == 1); next} found' "$here/../../CHANGELOG.md"; }

notes() {
    local text
    text=$(section "$version")
    [[ -n $text ]] || text=$(section Unreleased)
    [[ -n $text ]] || fail "CHANGELOG.md says nothing about $version"
    cat <<NOTES
# credbroker $version
$text

## Install

\`\`\`sh
curl --proto '=https' --tlsv1.2 -fsSL https://github.com/credbroker/credbroker/releases/download/v$version/install.sh | sh
credbroker demo
\`\`\`

The script checks the SHA-256 of the archive. \`SHA256SUMS\` has the checksums of all files of the release.
NOTES
}

case $1 in
    install) install "$3" ;;
    notes) notes ;;
    *) fail "usage: deploy/release/render.sh install VERSION DIRECTORY, or notes VERSION" ;;
esac
