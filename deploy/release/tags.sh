#!/bin/bash
# Prints the tags of a release: of the repository, and of each module of Go, whose tags begin with its directory.
#
# usage: deploy/release/tags.sh VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
version=$1 module=github.com/credbroker/credbroker
echo "v$version"
for directory in client/go client/go/controllerruntime; do
    grep -qx "module $module/$directory" "$directory/go.mod" || { echo "$directory/go.mod: not module $module/$directory" >&2; exit 1; }
    # A program that uses the module does not see its `replace`.
    required=$(sed -n "s|^\s*$module/client/go \(v[^ ]*\).*|\1|p" "$directory/go.mod")
    [[ -z $required || $required == "v$version" ]] ||
        { echo "$directory/go.mod: requires $module/client/go $required; run: go mod edit -require=$module/client/go@v$version" >&2; exit 1; }
    echo "$directory/v$version"
done
