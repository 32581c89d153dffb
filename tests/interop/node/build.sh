#!/bin/bash
# Builds what start.sh needs, besides the control plane's build.sh: containerd and runc from their Go modules, and Debian's CNI
# plugins; and Kueue's manager. What is there is left as it is, so a second call takes no time. Cold, it takes about ten minutes
# on two cores.
#
# usage: build.sh
#   NODE_PROGRAMS    where to (target/node)
#   CONTROLPLANE     where Kubernetes' own programs go (target/controlplane)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
PATH=$PATH:/usr/local/go/bin
fail() { echo "build.sh: $*" >&2; exit 1; }
"$here/../controlplane/build.sh" kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet

folder=${NODE_PROGRAMS:-$here/../../../target/node}
mkdir -p "$folder/bin" "$folder/stamps"
folder=$(cd "$folder" && pwd)
exec 9>"$folder/lock"
flock 9
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A stamp says what a program was built from. An older one is built again.
stamp() { cat "$here/programs/$1"/go.{mod,sum} | sha256sum; }
build() { # MODULE PACKAGE [ARGUMENT...]
    local module=$1 package=$2 name=${2##*/} began=$SECONDS
    shift 2
    [[ ! -x $folder/bin/$name || $(cat "$folder/stamps/$name" 2>/dev/null) != "$(stamp "$module")" ]] || return 0
    echo "building $name"
    timeout 1800 nice go build -C "$here/programs/$module" -trimpath -buildvcs=false -o "$folder/bin/$name" "$@" \
        "$package" 9>&- || fail "$name cannot be built"
    stamp "$module" >"$folder/stamps/$name"
    echo "built $name in $((SECONDS - began)) s"
}
# The packages are unpacked, not installed.
debian() { # PACKAGE
    (cd "$work" && { apt-get download -qq "$1" || { apt-get update -qq && apt-get download -qq "$1"; }; }) >"$work/log" 2>&1 ||
        fail "apt cannot download $1: $(tail -n 1 "$work/log")"
    dpkg-deb --extract "$work/$1"_*.deb "$work/$1"
}

version=$(go list -C "$here/programs/containerd" -m -f '{{.Version}}' github.com/containerd/containerd/v2)
for name in containerd containerd-shim-runc-v2 ctr; do
    CGO_ENABLED=0 build containerd "github.com/containerd/containerd/v2/cmd/$name" -tags no_btrfs,no_zfs,no_devmapper \
        -ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=${version#v}"
done
CGO_ENABLED=0 build kueue sigs.k8s.io/kueue/cmd/kueue -ldflags "-s -w"
if [[ ! -x $folder/bin/runc || $(cat "$folder/stamps/runc" 2>/dev/null) != "$(stamp runc)" ]]; then
    # runc runs with the machine's libseccomp2, and needs the headers of libseccomp-dev.
    debian libseccomp-dev
    root=$work/libseccomp-dev/usr
    libraries=$(cd "$root/lib" && echo *)
    export CGO_CFLAGS=-I$root/include CGO_LDFLAGS="-L$root/lib/$libraries -L/usr/lib/$libraries"
    export PKG_CONFIG_PATH=$root/lib/$libraries/pkgconfig
    build runc github.com/opencontainers/runc -tags seccomp -ldflags "-s -w"
fi
if [[ ! -x $folder/cni/bridge ]]; then
    debian containernetworking-plugins
    cp -r "$work/containernetworking-plugins/usr/lib/cni" "$folder/cni"
fi
