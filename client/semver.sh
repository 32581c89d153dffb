#!/bin/bash
# Compares the public API of the client libraries with that of the newest release, by the rules of semantic versioning.
# Before the first release, the file semver-baseline names the commit to compare with. Only a release refreshes it, or a
# decision that breaks the API and that the commit explains.
# It needs cargo-semver-checks. Without the history of that commit, as in a shallow clone, it says so and compares nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
baseline=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || cat client/semver-baseline)
if ! git cat-file -e "$baseline^{commit}" 2>/dev/null; then
    echo "SKIPPED: the history has no $baseline, which the API is compared with; run: git fetch --unshallow --tags" >&2
    exit 0
fi
directory=target/semver
tree=$directory/baseline
rm -rf "$tree"
mkdir -p "$tree"
git archive "$baseline" | tar -x -C "$tree"
# As in public-api.sh: without the features of credbroker's own programs, whose names begin with an underscore.
export CARGO_TARGET_DIR=$directory K8S_OPENAPI_ENABLED_VERSION=1.34
cargo semver-checks --manifest-path client/Cargo.toml --baseline-root "$tree/client" \
    --only-explicit-features --features async --features rustls
cargo semver-checks --manifest-path client/kube/Cargo.toml --baseline-root "$tree/client/kube" --only-explicit-features
rm -rf "$tree"
