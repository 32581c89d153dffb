#!/bin/bash
# Compares the public API of the client library with its committed listing, public-api.txt; BLESS=1 writes the listing.
# It needs a nightly Rust and cargo-public-api. The types of credbroker-proto that the library exports are listed too.
# Also with BLESS=1 it fails if the API has types of prost or tonic, or the error types of rustls and kube.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# Without the features `messages` and `serialize`, which are not a part of the API.
export CARGO_TARGET_DIR=../target/public-api
listing=$(cargo +nightly public-api -sss --no-default-features --features async,blocking,rustls,kube,k8s-v1_34)
[[ $listing == "pub mod credbroker_client"* ]] || { echo "cargo public-api printed no listing" >&2; exit 1; }
# With the features of credbroker-proto that the library turns on.
exported=$(cargo +nightly public-api -sss --manifest-path ../proto/Cargo.toml --no-default-features --features client |
    grep -E 'credbroker_proto::(Code|Reason|code::Code|reason::Reason)')
listing+=$'\n'$exported
# Another major version of these crates would otherwise be a breaking change of this one.
if grep -E '\b(prost|tonic)|\b(kube_client|rustls)::error|\brustls_pki_types' <<<"$listing"; then
    echo "the public API has these types of prost, tonic or the errors of TLS and kube; use types of the library" >&2
    exit 1
fi
if [[ -n ${BLESS:-} ]]; then
    printf '%s\n' "$listing" >public-api.txt
else
    diff public-api.txt - <<<"$listing" || {
        echo "the public API has changed: if the difference is intended, run BLESS=1 client/public-api.sh" >&2
        exit 1
    }
fi
