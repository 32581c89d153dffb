#!/bin/bash
# Installs a release as its users do, from its files: with the installer in a bare Debian without a network, where the demo runs,
# and the Go modules by their tags.
#
# usage: deploy/release/check.sh [DIRECTORY]     as .ci/release makes it (target/release-files)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
files=$(realpath "${1:-$root/target/release-files}")
fail() { echo "$*" >&2; exit 1; }
arch=$(dpkg --print-architecture)
version=$(sed -n '1s/^v//p' "$files/tags")
work=$(mktemp -d --tmpdir="$root/target")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT

(cd "$files" && sha256sum --check --quiet SHA256SUMS)
echo "the checksums are right"

# A user of a machine that has Debian's smallest set of packages.
debian() {
    local reason
    reason=$("$root/deploy/base.sh") || { echo "SKIPPED: installing in a bare Debian: $reason"; return; }
    cp -a "$root/target/base" "$work/debian"
    mkdir -p "$work/debian"/{release,home/user}
    cp "$files"/{install.sh,"credbroker-$version-linux-$arch.tar.gz"} "$work/debian/release"
    chown 1000:1000 "$work/debian/home/user"
    in_debian() {
        unshare --net --pid --fork --kill-child --mount-proc --root "$work/debian" --wd /home/user \
            --setgid 1000 --setuid 1000 env -i HOME=/home/user PATH=/home/user/.local/bin:/usr/bin:/bin TERM=dumb "$@"
    }
    # A file that was changed on its way is not used.
    mkdir "$work/debian/changed"
    cp "$work/debian/release"/*.tar.gz "$work/debian/changed"
    echo >>"$work/debian/changed/credbroker-$version-linux-$arch.tar.gz"
    if in_debian sh /release/install.sh --from /changed 2>"$work/errors"; then fail "a changed archive is installed"; fi
    grep -q 'is not the one of the release' "$work/errors" || fail "the installer does not say why: $(cat "$work/errors")"
    [[ ! -e $work/debian/home/user/.local ]] || fail "a refused archive leaves files"

    local since=$SECONDS
    in_debian sh /release/install.sh --from /release
    in_debian credbroker demo
    ((SECONDS - since < 60)) || fail "the installation and the demo took $((SECONDS - since)) s"
    echo "installed, and the demo done, in $((SECONDS - since)) s"
    # Again, as for an upgrade.
    in_debian sh /release/install.sh --from /release >/dev/null
    [[ $(in_debian kubectl-credbroker --version) == "credbroker $version"* ]] || fail "no plugin of kubectl"
    [[ $(in_debian credbroker-exec --version) == "credbroker-exec $version"* ]] || fail "no shim"
    for file in man/man1/credbroker.1 bash-completion/completions/credbroker fish/vendor_completions.d/credbroker.fish; do
        [[ -s $work/debian/home/user/.local/share/$file ]] || fail "no $file"
    done
    [[ -z $(find "$work/debian/home/user/.local" -name '*.new') ]] || fail "the installer leaves files that it moves"
}

# A program elsewhere that requires the modules at their tags, which a clone of this commit has.
modules() {
    local tag
    git clone --quiet --bare "$root" "$work/repository"
    while read -r tag; do git -C "$work/repository" tag --no-sign --force "$tag" HEAD; done <"$files/tags"
    mkdir "$work/program"
    cat >"$work/program/main.go" <<'GO'
package main

import (
	"fmt"

	credbroker "github.com/credbroker/credbroker/client/go"
	_ "github.com/credbroker/credbroker/client/go/controllerruntime"
)

func main() { fmt.Println(credbroker.ClusterProfile("fleet", "paris")) }
GO
    # What is downloaded already is not downloaded again. Our own versions go nowhere else.
    export GOPROXY GOMODCACHE=$work/modules GONOSUMDB=* GOFLAGS=-modcacherw GOPRIVATE=github.com/credbroker/*
    GOPROXY=file://$(env -u GOMODCACHE go env GOMODCACHE)/cache/download,$(env -u GOPROXY go env GOPROXY)
    export GIT_CONFIG_COUNT=1 GIT_CONFIG_VALUE_0=https://github.com/credbroker/credbroker
    export GIT_CONFIG_KEY_0=url.$work/repository.insteadOf
    (cd "$work/program" && go mod init example.test/program && go get "github.com/credbroker/credbroker/client/go@v$version" \
        "github.com/credbroker/credbroker/client/go/controllerruntime@v$version" && go mod tidy) >"$work/go" 2>&1 ||
        fail "the Go modules cannot be required: $(tail -n 20 "$work/go")"
    [[ $(go run -C "$work/program" .) == *fleet/paris* ]] || fail "the program with the Go modules does not run"
    grep 'credbroker/client/go' "$work/program/go.mod"
    echo "a program requires the Go modules by their tags"
}
debian
modules
