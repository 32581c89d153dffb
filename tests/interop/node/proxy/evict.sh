# Sourced by run.sh: evicting a credential ends the streams that were opened with it, within a second; and the next one works.
evict() {
    local way kind name began ended
    for way in "${ways[@]}"; do
        for kind in "${kinds[@]}"; do
            name=$at/log/$way-$kind-evict
            rm -f "$name"*
            { kubectl_of "$way" "$kind" exec --stdin shell -- sh -c 'while echo tick; do sleep 0.1; done' </dev/null >"$name" 2>"$name-error" || true
                date +%s%N >"$name-end"; } &
            until_true test -s "$name"
            began=$(date +%s%N)
            credbroker evict "$kind" >/dev/null
            until_true test -s "$name-end"
            ended=$((($(cat "$name-end") - began) / 1000000))
            echo "kubectl exec, $way, $kind: ended $ended ms after evict: $(head -n 1 "$name-error")"
            ((ended <= 3000)) || fail "the stream lasted"
            kubectl_of "$way" "$kind" exec shell -- true
        done
    done
}
