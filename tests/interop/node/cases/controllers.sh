#!/bin/bash
# Two controllers side by side, each with a broker: one with client/go, one with client-go's exec stanza and the shim. Tokens
# last a minute. After a third of the time both brokers are killed; after two thirds all tokens are revoked. A run of ten
# minutes or longer writes its table to docs/kubernetes.md.
#
#   NODE_MINUTES    how long (1)
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
third=$((${NODE_MINUTES:-1} * 20))
echo 60 >"$FOLDER/controlplane/lifetime"
declare -A pods
for via in broker shim; do
    chart "via-$via" "$via" --set "workload.env[0].value=$via"
done
for via in broker shim; do
    rolled_out "via-$via" "deployment/$via"
    pods[$via]=$(pod_of "via-$via" "app.kubernetes.io/name=$via")
    k logs --namespace "via-$via" --container "$via" --follow "${pods[$via]}" >"$work/$via" 2>&1 &
done
sleep $third
for via in broker shim; do kill_broker "via-$via" "${pods[$via]}"; done
sleep $third
rm -f "$FOLDER"/controlplane/tokens/*
sleep $third
for via in broker shim; do k delete --namespace "via-$via" "${pods[$via]}" --timeout 60s >/dev/null; done
wait

{
    echo "| Way to the credential | Requests | Failed | 401 responses | Events | Lost | Relists | Plugin runs |"
    echo "|---|---|---|---|---|---|---|---|"
    for via in broker shim; do
        report=$(tail -n 1 "$work/$via")
        name="\`client/go\`"
        [[ $via == broker ]] || name="exec stanza with the shim"
        jq -r --arg name "$name" --arg runs "$(issued "${pods[$via]}")" \
            '"| \($name) | \(.requests) | \(.failed) | \(.unauthorized) | \(.events) | \(.lost) | \(.relists) | \($runs) |"' <<<"$report" ||
            fail "$via: $(tail -n 5 "$work/$via")"
    done
} | tee "$work/table"
for via in broker shim; do grep -E ' failed: | are lost| list: ' "$work/$via" | sed "s/^/$via: /" || true; done
for namespace in via-broker via-shim; do k delete namespace $namespace --timeout 60s >/dev/null; done
if ((${NODE_MINUTES:-1} >= 10)); then "$node/record.py" "$work/table" "$NODE_MINUTES"; fi
for via in broker shim; do
    tail -n 1 "$work/$via" | jq -e '.lost == 0 and .events > 0' >/dev/null || fail "$via lost events"
done
tail -n 1 "$work/broker" | jq -e '.failed == 0' >/dev/null || fail "requests with client/go failed"
