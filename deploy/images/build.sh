#!/bin/bash
# Builds the images credbroker:VERSION, credbroker:VERSION-static and credbroker-exec:VERSION with buildah, runs them, and
# writes them as OCI archives to target/images. They are for each architecture that there are programs for; those of the
# machine's own run. It needs root, buildah, and either BASE (an image that buildah can pull) or debootstrap, which makes the
# base from Debian's packages, for the machine's own architecture alone; without these it is skipped.
#
# usage: [BASE=IMAGE] deploy/images/build.sh DIRECTORY...     each has credbroker and credbroker-exec of one architecture, as
#                                                          .ci/static builds them
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(realpath "$here/../..")
skip() { echo "SKIPPED: images: $*"; exit; }
fail() { echo "$*" >&2; exit 1; }
((EUID == 0)) || skip "buildah's chroot isolation needs root"
command -v buildah >/dev/null || skip "this machine has no buildah"
# buildah mounts its storage, which would stay mounted if this script was killed.
[[ ${HAS_OWN_MOUNTS-} ]] || HAS_OWN_MOUNTS=yes exec unshare --mount "$0" "$@"

# Directories by their architecture.
declare -A programs
for folder; do
    case $(readelf --file-header "$folder/credbroker-exec" | sed -n 's/ *Machine: *//p') in
        *X86-64) arch=amd64 ;;
        AArch64) arch=arm64 ;;
        *) fail "unknown architecture: $folder/credbroker-exec" ;;
    esac
    programs[$arch]=$(realpath "$folder")
done
own=$(dpkg --print-architecture)
[[ -n ${programs[$own]-} ]] || fail "no programs of this machine's architecture, $own"

out=$root/target/images
mkdir -p "$out"
work=$(mktemp -d --tmpdir="$out")
# Nothing that other users of buildah have is read or changed, and no file outside of target/ is needed.
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >"$work/policy.json"
export BUILDAH_ISOLATION=chroot
b() { buildah --root "$out/storage" --runroot "$work/run" "$@"; }
# What runs in the background ends too.
trap 'kill -KILL $(jobs -p) 2>/dev/null || true; wait; b rm --all >/dev/null 2>&1 || true; rm -rf "$work"' EXIT

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

version=$("${programs[$own]}/credbroker-exec" --version | cut -d ' ' -f 2)
# What an earlier call has built is in the way, and takes space.
for name in "credbroker:$version" "credbroker:$version-static" "credbroker-exec:$version"; do
    ! b manifest exists "$name" || b manifest rm "$name" >/dev/null
done
b rmi --prune >/dev/null
image() { # STAGE NAME ARCH...
    local archive=$out/${2/:/-}.tar arch
    b manifest create "$2" >/dev/null
    for arch in "${@:3}"; do
        # buildah of Debian 12 does not set BUILDPLATFORM.
        b bud --quiet "${pull[@]}" --signature-policy "$work/policy.json" --timestamp 0 --platform "linux/$arch" \
            --build-arg "BASE=$BASE" --build-arg "BUILDPLATFORM=linux/$own" --target "$1" --manifest "$2" \
            --file "$here/Containerfile" "${programs[$arch]}" >/dev/null
    done
    rm -f "$archive"
    b manifest push --all --quiet --signature-policy "$work/policy.json" "$2" "oci-archive:$archive:$2" >/dev/null
    printf '%s: %s, ' "$2" "${*:3}"
    ls -sh "$archive"
}
mapfile -t all < <(printf '%s\n' "${!programs[@]}" | sort)
brokers=("${all[@]}")
if ((${#pull[@]} && ${#all[@]} > 1)); then
    echo "SKIPPED: credbroker:$version of other architectures: debootstrap makes a base for this machine's alone; set BASE"
    brokers=("$own")
fi
image broker "credbroker:$version" "${brokers[@]}"
static=()
for arch in "${all[@]}"; do
    if readelf --program-headers "${programs[$arch]}/credbroker" | grep -q INTERP; then
        echo "SKIPPED: credbroker:$version-static for $arch: the broker is not static; see .ci/static"
    else
        static+=("$arch")
    fi
done
((${#static[@]} == 0)) || image static "credbroker:$version-static" "${static[@]}"
image shim "credbroker-exec:$version" "${all[@]}"

# container [FLAG...] IMAGE
container() { b from --quiet --pull-never --signature-policy "$work/policy.json" "$@"; }
# run IMAGE COMMAND...
run() {
    local name
    name=$(container "$1")
    b run "$name" -- "${@:2}"
    b rm "$name" >/dev/null
}
# prints TEXT IMAGE COMMAND...: whether the output of the command begins with the text
prints() {
    local name output
    name=$(container "$2")
    # buildah 1.28 can lose what a program prints just before it ends.
    for _ in {1..5}; do
        output=$(b run "$name" -- "${@:3}")
        [[ $output != "$1"* ]] || break
    done
    b rm "$name" >/dev/null
    [[ $output == "$1"* ]] || { echo "${*:2}: $output" >&2; return 1; }
}
for program in credbroker credbroker-exec; do
    prints "$program $version" "credbroker:$version" "/usr/bin/$program" --version || fail "$program does not run in its image"
done
prints 2001 "credbroker:$version" /usr/bin/id -u || fail "the broker's image has another user"
prints "credbroker-exec $version" "credbroker-exec:$version" /bin/credbroker-exec --version ||
    fail "the shim does not run in an empty image"
# `install` is what the component shim-copy runs.
run "credbroker:$version" /usr/bin/test -x /usr/bin/install || fail "the broker's image has no install"

# files IMAGE: those that it has, and its user
files() {
    local name
    name=$(container "$1")
    (cd "$(b mount "$name")" && find . -type f | sort)
    b inspect --format '{{.OCIv1.Config.User}}' "$name"
    b rm "$name" >/dev/null
}
[[ $(files "credbroker-exec:$version") == $'./bin/credbroker-exec\n65532:65532' ]] || fail "not the shim alone"
if [[ " ${static[*]} " == *" $own "* ]]; then
    [[ $(files "credbroker:$version-static") == $'./etc/ssl/certs/ca-certificates.crt\n./usr/bin/credbroker\n2001:2001' ]] ||
        fail "not the broker and the certificates alone"
    . "$here/static.sh"
    try_static "credbroker:$version-static" "${programs[$own]}/credbroker-exec" "$work"
fi

# The documentation's way to add a plugin.
mkdir "$work/plugin"
sed -n '/^```dockerfile$/,/^```$/p' "$root/docs/kubernetes.md" | sed '1d;$d' | sed "s/^FROM credbroker:.*/FROM credbroker:$version/" \
    >"$work/plugin/Containerfile"
printf '#!/bin/sh\nstat --format "%%u %%a" "$0"; id -u\n' >"$work/plugin/gke-gcloud-auth-plugin"
b bud --quiet --pull-never --signature-policy "$work/policy.json" --tag "with-plugin:$version" "$work/plugin" >/dev/null
prints $'0 755\n2001' "with-plugin:$version" gke-gcloud-auth-plugin || fail "the plugin is not root's, or another user runs it"
b rmi "with-plugin:$version" >/dev/null
# The interpreted plugin, where Debian's archive and PyPI can be reached. Its root is read-only in a pod.
if b bud --quiet --pull-never --signature-policy "$work/policy.json" --build-arg "BROKER=credbroker:$version" \
    --file "$here/aws.Containerfile" --tag "with-aws:$version" "$work/plugin" >"$work/error" 2>&1; then
    prints aws-cli/ "with-aws:$version" /usr/local/bin/aws --version || fail "aws does not run in its image"
    b rmi "with-aws:$version" >/dev/null
else
    echo "SKIPPED: aws.Containerfile: $(tail -n 1 "$work/error")"
fi
echo "the images run"
