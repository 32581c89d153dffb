#!/bin/bash
# docs/sidecar.md: its commands of kubectl work as they are written, with deploy/kubernetes/quickstart as it is.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
cd "$root"
mapfile -t commands < <(sed -n '/^```sh$/,/^```$/s/^kubectl //p' docs/sidecar.md)
((${#commands[@]} == 5)) || fail "docs/sidecar.md has ${#commands[@]} commands of kubectl"
for command in "${commands[@]}"; do
    echo "kubectl $command"
    read -ra arguments <<<"$command"
    k "${arguments[@]}" | tee "$work/output"
    case $command in
        *"credbroker get "*) grep -q '^own-cluster  *token  *' "$work/output" || fail "no credential" ;;
        *"credbroker status") grep -q '^own-cluster .* valid ' "$work/output" || fail "no credential in the status" ;;
    esac
done
k get namespace quickstart --ignore-not-found | grep -q Terminating || ! k get namespace quickstart 2>/dev/null ||
    fail "the namespace is still there"
