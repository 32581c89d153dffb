#!/bin/bash
# Checks the manifest for krew with krew's own code, installs the plugin from its archive with krew, and runs it as
# `kubectl credbroker`.
#
# usage: deploy/krew/check.sh BROKER [DIRECTORY]     DIRECTORY is that of .ci/release; without one the archive has BROKER alone
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(realpath "$here/../..")
broker=$(realpath "$1")
fail() { echo "$*" >&2; exit 1; }
arch=$(dpkg --print-architecture)
version=$("$broker" --version | cut -d ' ' -f 2)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

files=${2:-$work/files}
name=kubectl-credbroker-$version-linux-$arch
if [[ -z ${2-} ]]; then
    mkdir -p "$files" "$work/$name"
    cp "$broker" "$work/$name/kubectl-credbroker"
    cp "$root/LICENSE" "$work/$name"
    for each in amd64 arm64; do
        mv "$work/$name" "$work/tree" && name=kubectl-credbroker-$version-linux-$each && mv "$work/tree" "$work/$name"
        tar --create --gzip --directory "$work" --file "$files/$name.tar.gz" "$name"
    done
    name=kubectl-credbroker-$version-linux-$arch
fi
"$here/render.sh" "$version" "$files" >"$work/credbroker.yaml"
[[ -z ${2-} ]] || diff "$work/credbroker.yaml" "$2/credbroker.yaml" || fail "the manifest in $2 is of other archives"

tools=$root/target/tools
mkdir -p "$tools"
go build -C "$here/tools" -buildvcs=false -o "$(realpath "$tools")/" tool
"$tools/validate-krew-manifest" -manifest "$work/credbroker.yaml" -skip-install
# A wrong checksum is not accepted: krew compares it with the archive.
git init --quiet "$work/index"
git -C "$work/index" -c user.name=test -c user.email=test@localhost commit --quiet --allow-empty --message empty
install() { # MANIFEST
    env KREW_ROOT="$work/krew" KREW_DEFAULT_INDEX_URI="file://$work/index" KREW_NO_UPGRADE_CHECK=1 \
        "$tools/krew" install --manifest="$1" --archive="$files/$name.tar.gz" 2>&1
}
sed 's/sha256: 0/sha256: 1/; t; s/sha256: ./sha256: 0/' "$work/credbroker.yaml" >"$work/wrong.yaml"
if output=$(install "$work/wrong.yaml"); then fail "krew accepts a wrong checksum: $output"; fi
output=$(install "$work/credbroker.yaml") || fail "krew: $output"
[[ $(PATH=$work/krew/bin:$PATH kubectl credbroker --version) == "credbroker $version"* ]] || fail "kubectl does not run the plugin"
PATH=$work/krew/bin:$PATH kubectl credbroker status --help >"$work/help"
grep -q '^Usage: ' "$work/help" || fail "no usage: $(cat "$work/help")"
grep '^Usage: ' "$work/help"
echo "krew installs the plugin, and kubectl runs it"
