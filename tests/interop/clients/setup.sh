#!/bin/bash
# Prepares every client of the table in ${CLIENTS:-target/clients}, in the versions that the files beside it pin. Installs what is
# missing from Debian's packages, pip, npm, Maven and the Go modules. A second call takes a few seconds.
#
# usage: setup.sh     CONTROLPLANE is as in ../controlplane/build.sh
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=${CLIENTS:-$root/target/clients}
mkdir -p "$out"
out=$(cd "$out" && pwd)
export CONTROLPLANE=${CONTROLPLANE:-$root/target/controlplane}
PATH=$PATH:/usr/local/go/bin

packages=()
command -v mvn >/dev/null || packages+=(maven default-jdk-headless)
command -v npm >/dev/null || packages+=(nodejs npm)
command -v ip >/dev/null || packages+=(iproute2)
command -v openssl >/dev/null || packages+=(openssl)
python3 -c 'import venv, ensurepip' 2>/dev/null || packages+=(python3-venv)
if ((${#packages[@]})); then
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}"
fi

# Whether a client was made from these files; `made NAME FILE...` says so afterwards.
digest() { cat "${@:2}" | sha256sum; }
current() { [[ $(cat "$out/$1.made" 2>/dev/null) == "$(digest "$@")" ]]; }
made() { digest "$@" >"$out/$1.made" && echo "ready: $1"; }

"$here/../controlplane/build.sh" kube-apiserver kubectl
ln -sfn "$(cd "$CONTROLPLANE" && pwd)/bin/kubectl" "$out/kubectl"

# Debian 12's kubectl is of the last kind that knows v1beta1 only; v1 came with 1.22. It is unpacked, not installed.
if [[ ! -x $out/kubectl-v1beta1 ]]; then
    unpacked=$(mktemp -d)
    (cd "$unpacked" && { apt-get download -qq kubernetes-client || { apt-get update -qq && apt-get download -qq kubernetes-client; }; })
    dpkg-deb --extract "$unpacked"/*.deb "$unpacked/root"
    "$unpacked/root/usr/bin/kubectl" version --client | grep -q 'GitVersion:"v1.20.2"' ||
        { echo "setup.sh: Debian's kubectl is not 1.20.2" >&2; exit 1; }
    install "$unpacked/root/usr/bin/kubectl" "$out/kubectl-v1beta1"
    rm -r "$unpacked"
    echo "ready: kubectl-v1beta1"
fi

helm=("$here/tools/go.mod" "$here/tools/go.sum")
current helm "${helm[@]}" || {
    nice go build -C "$here/tools" -buildvcs=false -o "$out/helm" helm.sh/helm/v3/cmd/helm
    made helm "${helm[@]}"
}
# What it needs is in conflict with what helm needs.
[[ -x $out/k9s ]] || GOBIN=$out nice go install -buildvcs=false github.com/derailed/k9s@v0.50.16
go_client=("$here"/go/*)
current go "${go_client[@]}" || {
    nice go build -C "$here/go" -buildvcs=false -o "$out/go" .
    made go "${go_client[@]}"
}
current python "$here/python/requirements.txt" || {
    python3 -m venv "$out/python"
    "$out/python/bin/python" -m pip install --quiet --requirement "$here/python/requirements.txt"
    made python "$here/python/requirements.txt"
}
for name in node node-next; do
    mkdir -p "$out/$name"
    cp "$here/$name"/package*.json "$here/node/client.js" "$out/$name"
    current $name "$here/$name"/package*.json || {
        (cd "$out/$name" && npm ci --silent --no-audit --no-fund)
        made $name "$here/$name"/package*.json
    }
done
for name in java fabric8; do
    current $name "$here/$name"/* || {
        mvn --batch-mode --quiet --file "$here/$name/pom.xml" -Dtarget="$out/$name" compile
        made $name "$here/$name"/*
    }
done
(cd "$root" && nice cargo build --locked --package credbroker-kube --example kube_exec)
ln -sfn "${CARGO_TARGET_DIR:-$root/target}/debug/examples/kube_exec" "$out/kube"
