#!/bin/bash
# Compares the public API of the client library with its committed listing, public-api.txt; BLESS=1 writes the listing.
# It needs a nightly Rust and cargo-public-api.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# Without the feature `messages`, which is not a part of the API.
listing=$(CARGO_TARGET_DIR=../target/public-api cargo +nightly public-api -sss \
    --no-default-features --features async,blocking,rustls,kube,k8s-v1_34)
[[ $listing == "pub mod credbroker_client"* ]] || { echo "cargo public-api printed no listing" >&2; exit 1; }
if [[ -n ${BLESS:-} ]]; then
    printf '%s\n' "$listing" >public-api.txt
else
    diff public-api.txt - <<<"$listing" || {
        echo "the public API has changed: if the difference is intended, run BLESS=1 client/public-api.sh" >&2
        exit 1
    }
fi
