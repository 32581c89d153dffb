# Sourced by run.sh: no token and no private key is in the memory of a client that runs, in what it can read, or in what the proxy
# writes. The same search finds them in the proxy.
canary() {
    local way kind name number
    # As in the part `matrix`, all kinds at the same time, and each has streams that last.
    for way in "${ways[@]}"; do
        for kind in "${kinds[@]}"; do
            name=$at/log/$way-$kind
            kubectl_of "$way" "$kind" get configmap counter --namespace events --watch --output 'jsonpath={.data.number}{"\n"}' >"$name-watch" 2>&1 &
            kubectl_of "$way" "$kind" exec --stdin shell -- sh -c 'while echo tick; do sleep 0.2; done' >"$name-exec" 2>&1 </dev/null &
            kubectl_of "$way" "$kind" logs --follow chatty >/dev/null 2>"$name-logs" &
            kubectl_of "$way" "$kind" port-forward pod/echo :8080 >"$name-forward" 2>&1 &
        done
    done
    for name in "$at"/log/{T,U}-{token,certificate}; do
        until_true test -s "$name-watch" -a -s "$name-exec" -a -s "$name-forward"
    done
    rotate
    # Events and bytes go on with the new credentials.
    for name in "$at"/log/{T,U}-{token,certificate}-{watch,exec}; do
        number=$(wc -l <"$name")
        until_true more_lines_than "$number" "$name"
    done
    ! python3 "$here/canary.py" "$at/issued" "pid:$(cat "$at/proxy.pid")" >"$at/log/canary" 2>&1 && grep -q token "$at/log/canary" &&
        grep -q key "$at/log/canary" || fail "nothing is found in the proxy: $(cat "$at/log/canary")"
    cat "$at/log/canary"
    searched "uid:$client_uid" "uid:$sandbox_uid"
    written
    end_clients
}
searched() { # PLACE...
    python3 "$here/canary.py" "$at/issued" "$@" || fail "a credential is where none may be, or nothing was searched"
}
# What clients have and can read, and what the proxy writes.
written() { searched "$at/client" "$at/sandbox" /run/credbroker-proxy/ca.crt "$at/log/proxy" "$at/proxy-state"; }
