#!/bin/bash
# Builds SPIRE into ${SPIRE:-target/spire}/bin: spire-server, spire-agent and oidc-discovery-provider, of the version in
# go.mod. What is there is left as it is, so a second call takes no time, and clones can share the directory. Cold, it takes ten
# minutes of processor time.
#
# usage: build.sh [--built]
#   --built    builds nothing: whether all of it is there
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${SPIRE:-$here/../../../target/spire}
PATH=$PATH:/usr/local/go/bin
fail() { echo "build.sh: $*" >&2; exit 1; }

# A stamp says what the programs were built from. Older ones are built again.
stamp=$(cat "$here/go.mod" "$here/go.sum" | sha256sum)
complete() { [[ -x $folder/bin/spire-agent && $(cat "$folder/stamp" 2>/dev/null) == "$stamp" ]]; }
if [[ ${1-} == --built ]] || complete; then
    complete
    exit
fi
command -v go >/dev/null || fail "no Go: install 1.25 or newer, from Go's own archive (Debian 12's is too old)"
command -v gcc >/dev/null || fail "no gcc: install it, since the SPIRE server's SQLite needs cgo"
export CGO_ENABLED=1
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
# Two calls at a time would build the same twice.
exec 9>"$folder/lock"
flock 9
if complete; then exit; fi

version=$(go list -C "$here" -m -f '{{.Version}}' github.com/spiffe/spire)
echo "SPIRE $version: downloading modules and looking up what is compiled already"
all=$(timeout 600 go list -C "$here" -deps -f '{{if .Stale}}{{.ImportPath}}{{end}}' tool | grep -c .) || [[ $all == 0 ]]
began=$SECONDS log=$folder/build.log
timeout 1800 nice go build -C "$here" -v -buildvcs=false -o "$folder/bin.new/" \
    -ldflags "-s -w -X github.com/spiffe/spire/pkg/common/version.gittag=${version#v}" tool 2>"$log" 9>&- &
job=$!
trap 'kill $job 2>/dev/null' EXIT
while sleep 1 && kill -0 $job 2>/dev/null; do
    (((SECONDS - began) % 20)) || echo "SPIRE $version: $(grep -vc '^go: \|^#' "$log" || true) of $all packages, $((SECONDS - began)) s"
done
wait $job || { tail -n 20 "$log" >&2; fail "SPIRE cannot be built (within 1800 s); see $log"; }
trap - EXIT
rm -rf "$folder/bin"
mv "$folder/bin.new" "$folder/bin"
echo "$stamp" >"$folder/stamp"
rm "$log"
echo "SPIRE $version: built in $((SECONDS - began)) s"
