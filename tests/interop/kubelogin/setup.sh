#!/bin/bash
# Builds int128/kubelogin and the issuer of its tests into target/kubelogin. Its go.mod names the version of Go, which an
# older Go downloads from the module proxy.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=../../../target/kubelogin
mkdir -p "$out"
rm -f "$out/skipped" "$out/kubectl-oidc_login" "$out/issuer"
PATH=$PATH:/usr/local/go/bin
if ! command -v go >/dev/null; then
    echo "SKIPPED kubelogin: this machine has no go" | tee "$out/skipped"
    exit
fi
go build -buildvcs=false -o "$out/issuer" .
# By the name under which kubectl finds it as a plugin.
go build -buildvcs=false -o "$out/kubectl-oidc_login" github.com/int128/kubelogin
echo "ready: kubelogin"
