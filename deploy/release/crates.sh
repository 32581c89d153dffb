#!/bin/bash
# Packs every crate that is published, as `cargo package` does, and builds each from its package. A crate needs a description,
# a license and a README.
#
# usage: deploy/release/crates.sh DIRECTORY     where the packages go
#   VERIFY=no    does not build them
set -euo pipefail
out=$(realpath "$1")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
fail() { echo "$*" >&2; exit 1; }
# Outside of Git: a package has the commit in it where there is one, and not elsewhere.
tree=$root/target/crates
rm -rf "$tree"
mkdir -p "$tree"
trap 'rm -rf "$tree"' EXIT
tar --create --directory "$root" --exclude=./target --exclude=./.git . | tar --extract --directory "$tree"
cd "$tree"

readarray -t crates < <(cargo metadata --locked --no-deps --format-version 1 | python3 -c '
import json, os, sys
for package in json.load(sys.stdin)["packages"]:
    if package["publish"] == []:
        continue
    lacks = [key for key in ("description", "license", "repository", "readme") if not package[key]]
    readme = os.path.join(os.path.dirname(package["manifest_path"]), package["readme"] or "")
    if package["readme"] and not os.path.isfile(readme):
        lacks.append(readme)
    if lacks:
        sys.exit("{}: no {}".format(package["name"], ", ".join(lacks)))
    print(package["name"])
')
((${#crates[@]})) || fail "no crate to package"
flags=()
[[ ${VERIFY:-yes} == yes ]] || flags+=(--no-verify)
# A program chooses the version of the Kubernetes API. For a library alone, the variable does.
K8S_OPENAPI_ENABLED_VERSION=1.34 CARGO_TARGET_DIR=$root/target/package-build cargo package --locked --allow-dirty "${flags[@]}" "${crates[@]/#/--package=}"
cp "$root"/target/package-build/package/*.crate "$out"
[[ $(find "$out" -name '*.crate' | wc -l) == "${#crates[@]}" ]] || fail "not every crate has a package: ${crates[*]}"
