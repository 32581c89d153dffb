#!/bin/bash
# Compares the public API of the client library with that of the newest release, by the rules of semantic versioning.
# Before the first release, the file semver-baseline names the commit to compare with. Only a release renews it, or a
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
# With the features of public-api.sh: without `messages` and `serialize`, which are not a part of the API.
features=()
for feature in async blocking rustls kube k8s-v1_34; do features+=(--features "$feature"); done
CARGO_TARGET_DIR=$directory cargo semver-checks --manifest-path client/Cargo.toml --baseline-root "$tree/client" \
    --only-explicit-features "${features[@]}"
rm -rf "$tree"
