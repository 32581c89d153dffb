# Sourced by run.sh: three `kubectl logs --follow` whose output nothing reads slow no other request. Measured in turns, with and
# without them, through the same proxy, and directly in the same run: what these logs cost the API server is not the proxy's. The
# machine may be busy with something else, so the second try counts too.
readers() {
    local way
    for way in "${ways[@]}"; do
        compared "$way" || compared "$way" || fail "unread logs slow other requests"
    done
}
compared() { # WAY
    local way=$1 turn reader fifos
    rm -f "$at"/log/{with,without}-"$way"
    for turn in {1..6}; do
        measured "$way" >>"$at/log/without-$way" || fail "no requests"
        fifos=()
        for reader in 1 2 3; do
            mkfifo "$at/log/unread-$reader"
            # This end is open, and nothing reads from it.
            exec {fifo}<>"$at/log/unread-$reader"
            fifos+=("$fifo")
            kubectl_of "$way" token logs --follow chatty >&"$fifo" 2>/dev/null &
            disown
        done
        until_true are_full
        measured "$way" >>"$at/log/with-$way" || fail "no requests"
        end_clients
        for fifo in "${fifos[@]}"; do exec {fifo}>&-; done
        rm "$at"/log/unread-*
    done
    python3 "$here/compare.py" "$way" "$at/log/without-$way" "$at/log/with-$way"
}
# The proxy has stopped to read what the API server sends in three connections.
are_full() { (($(ss --no-header --tcp --numeric state established dst 10.0.0.1 dport = :443 | awk '$1 > 65536' | wc -l) >= 3)); }
measured() { # WAY
    local target=/clusters/proxy/token way=$1
    local what=(/api/v1/namespaces/events/configmaps/counter 200 "$FOLDER/controlplane" "$target")
    if [[ $way == T ]]; then
        HANDLE=$(client T credbroker-exec --proxy "$target" --api-version v1 | jq -r .status.token) \
            python3 "$here/latency.py" "${what[@]}" /run/credbroker-proxy/ca.crt 9465 "$client_uid"
    else
        python3 "$here/latency.py" "${what[@]}" /run/credbroker-proxy/sandbox/proxy.sock
    fi
}
