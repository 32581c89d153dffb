# Sourced by run.sh: 105 `kubectl exec` of each kind of credential while it is replaced every six seconds, and each expires.
rotation() {
    local kind before rounds=105 turns
    # What is replaced is of use for a while, as with an issuer of real tokens.
    echo 20 >"$at/lifetime"
    rotate
    while sleep 6; do rotate || echo "a rotation failed" >&2; done &
    local rotating=$!
    for kind in "${kinds[@]}"; do
        before=$(generations "$kind")
        # The port and the sandbox in turns, WebSocket and SPDY too, two at a time.
        failed=$(seq "$rounds" | xargs --max-procs 2 --replace "$here/once.sh" {} "$kind" 2>"$at/log/exec" | wc -l) ||
            fail "exec: $(tail -n 5 "$at/log/exec")"
        turns=$(($(generations "$kind") - before))
        ((turns >= 3)) || fail "the $kind was replaced $turns times"
        ((failed == 0)) || fail "$failed of $rounds exec with a $kind: $(tail -n 5 "$at/log/exec")"
        echo "kubectl exec, $kind: 0 of $rounds failed, with $turns rotations meanwhile"
    done
    kill "$rotating"
    echo 3600 >"$at/lifetime"
    rotate
}
# How many credentials have been issued.
generations() { find "$at/issued" -name "$1-*" | wc -l; }
