#!/bin/bash
# Compares the public API of the client libraries with their committed listings, public-api.txt of each; BLESS=1 writes them.
# It needs a nightly Rust and cargo-public-api. The types of credbroker-proto that the library exports are listed too.
# Also with BLESS=1 it fails if the API has types of other crates that it should not, or is larger than it has to be.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export CARGO_TARGET_DIR=$PWD/../target/public-api

# usage: list PACKAGE [FLAG...]
list() { cargo +nightly public-api -sss --manifest-path "$1/Cargo.toml" --no-default-features "${@:2}"; }

# usage: check DIRECTORY LISTING MOST-LINES FOREIGN-TYPES
# Another major version of the crates of foreign types would otherwise be a breaking change of this one.
check() {
    if grep -E "$4" <<<"$2"; then
        echo "the public API has these types of other crates; use types of the library" >&2
        exit 1
    fi
    local lines
    lines=$(wc -l <<<"$2")
    if ((lines > $3)); then
        echo "the public API in $1 has $lines lines; at most $3 are wanted" >&2
        exit 1
    fi
    if [[ -n ${BLESS:-} ]]; then
        printf '%s\n' "$2" >"$1/public-api.txt"
    else
        diff "$1/public-api.txt" - <<<"$2" || {
            echo "the public API has changed: if the difference is intended, run BLESS=1 client/public-api.sh" >&2
            exit 1
        }
    fi
}

# Without the features of credbroker's own programs, whose names begin with an underscore.
client=$(list . --features async,rustls)
[[ $client == "pub mod credbroker_client"* ]] || { echo "cargo public-api printed no listing" >&2; exit 1; }
# With the features of credbroker-proto that the library turns on.
client+=$'\n'$(list ../proto --features client | grep -E 'credbroker_proto::(Reason|reason::Reason)')
check . "$client" 300 '\b(prost|tonic|hyper|hyper_util|rustls|tokio_rustls|rustls_pki_types|kube|kube_client)[a-z_]*::'

kube=$(K8S_OPENAPI_ENABLED_VERSION=1.34 list kube)
[[ $kube == "pub mod credbroker_kube"* ]] || { echo "cargo public-api printed no listing" >&2; exit 1; }
check kube "$kube" 60 '\b(prost|tonic|hyper|hyper_util|rustls|tokio_rustls|rustls_pki_types)[a-z_]*::|\bkube[a-z_]*::error'
