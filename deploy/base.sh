#!/bin/bash
# Makes a small Debian in target/base with debootstrap, unless it is there. Exits with 77, and says why, where it cannot.
#
# usage: deploy/base.sh [PACKAGE]     with one more package, in target/base-PACKAGE
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
base=$root/target/base${1:+-$1}
[[ ! -e $base/etc/debian_version ]] || exit 0
((EUID == 0)) || { echo "debootstrap needs root"; exit 77; }
command -v debootstrap >/dev/null || { echo "this machine has no debootstrap"; exit 77; }
mkdir -p "$root/target"
work=$(mktemp -d --tmpdir="$root/target")
trap 'rm -rf "$work"' EXIT
debootstrap --variant=minbase --include="ca-certificates${1:+,$1}" bookworm "$work/base" >"$work/log" 2>&1 ||
    { echo "debootstrap: $(tail -n 1 "$work/log")"; exit 77; }
rm -rf "$work"/base/{var/cache/apt,var/lib/apt/lists,usr/share/doc,usr/share/man,usr/share/locale,var/log}/*
chmod 0755 "$work/base"
mv "$work/base" "$base"
