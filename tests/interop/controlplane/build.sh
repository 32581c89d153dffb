#!/bin/bash
# Builds what start.sh needs into ${CONTROLPLANE:-target/controlplane}: kube-apiserver, or the named commands of
# k8s.io/kubernetes, of the version in go.mod; Debian's etcd; the CRD of ClusterProfiles. What is there is left as it is, so a
# second call takes no time, and clones can share the directory. Cold, kube-apiserver takes about ten minutes on two cores.
#
# usage: build.sh [--built] [COMMAND...]     kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kubelet
#   --built    builds nothing: whether all of it is there
#   CONTROLPLANE_TIMEOUT    seconds that one build may take (1800)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${CONTROLPLANE:-$here/../../../target/controlplane}
PATH=$PATH:/usr/local/go/bin
fail() { echo "build.sh: $*" >&2; exit 1; }
built=
[[ ${1-} != --built ]] || { built=yes; shift; }
(($#)) || set -- kube-apiserver

# A stamp says what a program was built from. An older one is built again.
stamp=$(cat "$here/go.mod" "$here/go.sum" "$here/../go/go.mod" | sha256sum)
current() { [[ -x $folder/bin/$1 && $(cat "$folder/stamps/$1" 2>/dev/null) == "$stamp" ]]; }
complete() {
    local name
    [[ -x $folder/bin/etcd && $(cat "$folder/stamps/crd" 2>/dev/null) == "$stamp" ]] || return
    for name; do current "$name" || return; done
}
if [[ $built ]] || complete "$@"; then
    complete "$@"
    exit
fi
command -v go >/dev/null || fail "no Go: install 1.25 or newer, from Go's own archive (Debian 12's is too old)"
mkdir -p "$folder/bin" "$folder/stamps"
folder=$(cd "$folder" && pwd)
# Two calls at a time would build the same twice.
exec 9>"$folder/lock"
flock 9

# What start.sh, the plugin and the walk-throughs run.
missing=()
for program in curl jq openssl python3; do
    command -v "$program" >/dev/null || missing+=("$program")
done
if ((${#missing[@]})); then
    ((UID == 0)) || fail "install ${missing[*]}, or run this as root"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends "${missing[@]}" >&2
fi

# The package is unpacked, not installed: its installation would start a service, and needs root.
debian() { # PACKAGE PROGRAM
    local unpacked
    unpacked=$(mktemp -d)
    (cd "$unpacked" && { apt-get download -qq "$1" || { apt-get update -qq && apt-get download -qq "$1"; }; }) >&2 ||
        fail "apt cannot download $1"
    dpkg-deb --extract "$unpacked"/*.deb "$unpacked/root"
    install "$unpacked/root/usr/bin/$2" "$folder/bin/$2"
    rm -r "$unpacked"
}
if [[ ! -x $folder/bin/etcd ]]; then
    if command -v etcd >/dev/null; then
        ln -sf "$(command -v etcd)" "$folder/bin/etcd"
    else
        debian etcd-server etcd
    fi
fi

if [[ $(cat "$folder/stamps/crd" 2>/dev/null) != "$stamp" ]]; then
    module=sigs.k8s.io/cluster-inventory-api
    timeout 300 go mod download -C "$here/../go" "$module"
    install -m 644 "$(go list -C "$here/../go" -m -f '{{.Dir}}' "$module")/config/crd/bases/multicluster.x-k8s.io_clusterprofiles.yaml" \
        "$folder/clusterprofiles.yaml"
    echo "$stamp" >"$folder/stamps/crd"
fi

version=$(go list -C "$here" -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*}"
done
# build COMMAND: compiles it, with a line of progress each 20 seconds.
build() {
    local name=$1 package=k8s.io/kubernetes/cmd/$1 log=$folder/$1.log began=$SECONDS all job
    echo "$name $version: downloading modules and looking up what is compiled already"
    all=$(timeout 600 go list -C "$here" -deps -f '{{if .Stale}}{{.ImportPath}}{{end}}' "$package" | grep -c .) || [[ $all == 0 ]]
    timeout "${CONTROLPLANE_TIMEOUT:-1800}" nice go build -C "$here" -v -buildvcs=false -ldflags "$flags" \
        -o "$folder/bin/$name.new" "$package" 2>"$log" &
    job=$!
    trap 'kill $job 2>/dev/null' EXIT
    while sleep 1 && kill -0 $job 2>/dev/null; do
        (((SECONDS - began) % 20)) || echo "$name $version: $(grep -vc '^go: \|^#' "$log" || true) of $all packages, $((SECONDS - began)) s"
    done
    wait $job || { tail -n 20 "$log" >&2; fail "$name cannot be built (within ${CONTROLPLANE_TIMEOUT:-1800} s); see $log"; }
    trap - EXIT
    mv "$folder/bin/$name.new" "$folder/bin/$name"
    echo "$stamp" >"$folder/stamps/$name"
    rm "$log"
    echo "$name $version: built in $((SECONDS - began)) s"
}
for name; do
    current "$name" || build "$name"
done
