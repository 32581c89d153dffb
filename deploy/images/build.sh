#!/bin/bash
# Builds the images credbroker:VERSION and credbroker-exec:VERSION with buildah, runs both, and writes them as OCI archives to
# target/images. It needs root, buildah, and either BASE (an image that buildah can pull) or debootstrap, which makes the
# base from Debian's packages; without these it is skipped.
#
# usage: [BASE=IMAGE] deploy/images/build.sh BROKER SHIM     release builds, the shim static; see .ci/release
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(realpath "$here/../..")
skip() { echo "SKIPPED: images: $*"; exit; }
broker=$(realpath "$1")
shim=$(realpath "$2")
((EUID == 0)) || skip "buildah's chroot isolation needs root"
command -v buildah >/dev/null || skip "this machine has no buildah"

out=$root/target/images
mkdir -p "$out"
work=$(mktemp -d --tmpdir="$out")
trap 'rm -rf "$work"' EXIT
# Nothing that other users of buildah have is read or changed, and no file outside of target/ is needed.
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >"$work/policy.json"
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
b() { buildah --root "$out/storage" --runroot "$work/run" "$@"; }
fail() { echo "$*" >&2; exit 1; }

pull=()
if [[ -z ${BASE-} ]]; then
    BASE=localhost/credbroker-base:bookworm
    pull=(--pull-never)
    reason=$("$root/deploy/base.sh") || skip "$reason"
    if ! b images "$BASE" >/dev/null 2>&1; then
        container=$(b from scratch)
        b copy --quiet "$container" "$root/target/base" / >/dev/null
        b commit --quiet --signature-policy "$work/policy.json" "$container" "$BASE" >/dev/null
        b rm "$container" >/dev/null
    fi
fi

version=$("$shim" --version | cut -d ' ' -f 2)
mkdir "$work/context"
cp "$broker" "$work/context/credbroker"
cp "$shim" "$work/context/credbroker-exec"
image() { # TARGET NAME
    b bud --quiet "${pull[@]}" --signature-policy "$work/policy.json" --timestamp 0 --build-arg "BASE=$BASE" --target "$1" \
        --tag "$2:$version" --file "$here/Containerfile" "$work/context" >/dev/null
    rm -f "$out/$2.tar"
    b push --quiet --signature-policy "$work/policy.json" "$2:$version" "oci-archive:$out/$2.tar:$2:$version"
    ls -sh "$out/$2.tar"
}
image broker credbroker
image shim credbroker-exec

# run IMAGE COMMAND...
run() {
    local container
    container=$(b from --pull-never --signature-policy "$work/policy.json" "$1:$version")
    b run "$container" -- "${@:2}"
    b rm "$container" >/dev/null
}
for program in credbroker credbroker-exec; do
    [[ $(run credbroker "/usr/bin/$program" --version) == "$program $version"* ]] || fail "$program does not run in its image"
done
[[ $(run credbroker /usr/bin/id -u) == 2001 ]] || fail "the broker's image has another user"
[[ $(run credbroker-exec /bin/credbroker-exec --version) == "credbroker-exec $version"* ]] ||
    fail "the shim does not run in an empty image"
# `install` is what the component shim-copy runs.
run credbroker /usr/bin/test -x /usr/bin/install || fail "the broker's image has no install"
container=$(b from --pull-never --signature-policy "$work/policy.json" "credbroker-exec:$version")
mounted=$(b mount "$container")
files=$(cd "$mounted" && find . -type f | sort)
user=$(b inspect --format '{{.OCIv1.Config.User}}' "$container")
b rm "$container" >/dev/null
[[ $files == ./bin/credbroker-exec && $user == 65532:65532 ]] || fail "not the shim alone: $files, user $user"

# The documentation's way to add a plugin.
mkdir "$work/plugin"
sed -n '/^```dockerfile$/,/^```$/p' "$root/docs/kubernetes.md" | sed '1d;$d' | sed "s/^FROM credbroker:.*/FROM credbroker:$version/" \
    >"$work/plugin/Containerfile"
printf '#!/bin/sh\nstat --format "%%u %%a" "$0"; id -u\n' >"$work/plugin/gke-gcloud-auth-plugin"
b bud --quiet --pull-never --signature-policy "$work/policy.json" --tag "with-plugin:$version" "$work/plugin" >/dev/null
[[ $(run with-plugin gke-gcloud-auth-plugin) == $'0 755\n2001' ]] || fail "the plugin is not root's, or another user runs it"
b rmi "with-plugin:$version" >/dev/null
echo "credbroker:$version and credbroker-exec:$version run"
