# Sourced by run.sh: each command of kubectl, at the port and in the sandbox, with a token and with a certificate. Those that upgrade
# their connection do so with WebSocket, which is the default, and with SPDY.
matrix() {
    local command protocol way kind protocols failed=0
    for command in get watch apply logs proxy exec attach cp port-forward debug; do
        protocols=(websocket SPDY)
        case $command in get | watch | apply | logs | proxy) protocols=(plain) ;; esac
        for protocol in "${protocols[@]}"; do
            for way in "${ways[@]}"; do
                for kind in "${kinds[@]}"; do
                    if timeout 60 "$here/commands.sh" "$command" "$way" "$kind" "$protocol" >"$at/log/command" 2>&1; then
                        echo "kubectl $command, $protocol, $way, $kind"
                    else
                        failed=$((failed + 1))
                        echo "FAILED: kubectl $command, $protocol, $way, $kind: $(tail -n 3 "$at/log/command")"
                    fi
                done
            done
        done
    done
    ((failed == 0)) || fail "$failed commands"
    # What the proxy has recorded, and so has the API server under the same name.
    for protocol in websocket SPDY/3.1; do
        for command in exec attach portforward; do
            jq -r --arg protocol "$protocol" --arg command "$command" \
                'select(.upgraded == $protocol and .subresource == $command) | .audit_id' "$at/proxy-state/audit.jsonl" | sort -u >"$at/log/upgraded"
            (($(wc -l <"$at/log/upgraded") >= 4)) || fail "not all $command over $protocol: $(wc -l <"$at/log/upgraded")"
            jq -r --arg command "$command" 'select(.objectRef.subresource == $command and (.user.username | startswith("c4n4ry-"))) | .auditID' \
                "$FOLDER/controlplane/audit.log" | sort -u | comm -23 "$at/log/upgraded" - >"$at/log/unknown"
            [[ ! -s $at/log/unknown ]] || fail "the API server has not recorded $(wc -l <"$at/log/unknown") of $command over $protocol"
        done
    done
}
