#!/bin/bash
# Compares the public API of the client library with its committed listing, public-api.txt; BLESS=1 writes the listing.
# It needs a nightly Rust and cargo-public-api. The types of credbroker-proto that the library exports are listed too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# Without the feature `messages`, which is not a part of the API.
export CARGO_TARGET_DIR=../target/public-api
listing=$(cargo +nightly public-api -sss --no-default-features --features async,blocking,rustls,kube,k8s-v1_34)
[[ $listing == "pub mod credbroker_client"* ]] || { echo "cargo public-api printed no listing" >&2; exit 1; }
exported=$(cargo +nightly public-api -sss --manifest-path ../proto/Cargo.toml |
    grep -E 'credbroker_proto::(Code|Reason|code::Code|v1::ErrorReason)')
listing+=$'\n'$exported
if [[ -n ${BLESS:-} ]]; then
    printf '%s\n' "$listing" >public-api.txt
else
    diff public-api.txt - <<<"$listing" || {
        echo "the public API has changed: if the difference is intended, run BLESS=1 client/public-api.sh" >&2
        exit 1
    }
fi
