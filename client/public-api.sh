#!/bin/bash
# Prints the public API of the client library. It needs a nightly Rust and cargo-public-api.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# Without the feature `messages`, which is not a part of the API.
CARGO_TARGET_DIR=../target/public-api cargo +nightly public-api -sss \
    --no-default-features --features async,blocking,rustls,kube,k8s-v1_34
