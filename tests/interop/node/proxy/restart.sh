# Sourced by run.sh: the proxy and the broker are restarted under load, as `systemctl restart` does it. No request is lost, and
# `kubectl exec` that runs has ten seconds.
restart() {
    local way kind name program began lasted pid files=()
    for way in "${ways[@]}"; do
        for kind in "${kinds[@]}"; do
            files+=("$at/log/load-$way-$kind")
            "$here/load.sh" "${files[-1]}" "$way" "$kind" kubectl &
            # With an informer, and the same handle all the time.
            client "$way" env VIA=kubeconfig CONTEXT="proxy/$kind" controller >"$at/log/controller-$way-$kind" 2>&1 &
        done
    done
    for kind in "${kinds[@]}"; do
        files+=("$at/log/load-curl-$kind")
        "$here/load.sh" "${files[-1]}" U "$kind" curl &
    done
    go_on "${files[@]}"
    for program in proxy broker proxy broker; do
        # One that lasts, and one that ends by itself in time.
        for way in "${ways[@]}"; do
            rm -f "$at"/log/{tick,short}-"$way"*
            ticks "$way" &
            name=$at/log/short-$way
            { kubectl_of "$way" token exec shell -- sh -c 'echo began; sleep 7; echo ended' >"$name" 2>"$name-error" && touch "$name-ok"; } &
            until_true test -s "$name" -a -s "$at/log/tick-$way"
        done
        began=$(date +%s%N)
        pid=$(cat "$at/$program.pid")
        kill -HUP "$(cat "$at/$program.holder")"
        until_true has_changed "$pid" "$at/$program.pid"
        lasted=$((($(date +%s%N) - began) / 1000000))
        echo "the $program has ended after $lasted ms, and the next one has started"
        go_on "${files[@]}"
        for way in "${ways[@]}"; do
            until_true test -e "$at/log/short-$way-ok"
            if [[ $program == broker ]]; then
                [[ ! -e $at/log/tick-$way-end ]] || fail "an exec has ended with the broker: $(cat "$at/log/tick-$way-error")"
                touch "$at/log/tick-$way-enough"
            fi
            until_true test -e "$at/log/tick-$way-end"
            lasted=$((($(cat "$at/log/tick-$way-end") - began) / 1000000))
            echo "kubectl exec, $way: ended after $lasted ms: $(head -n 1 "$at/log/tick-$way-error")"
            [[ $program == broker ]] || ((lasted > 9000)) || fail "less than ten seconds"
        done
    done
    for name in "${files[@]}"; do touch "$name.stop"; done
    for pid in $(ps -o pid=,comm= -u "$client_uid,$sandbox_uid" | awk '$2 == "controller" { print $1 }'); do kill "$pid"; done
    wait $(jobs -p -r | grep -v -x -f <(cat "$at"/*.holder))
    lost "${files[@]}"
    for name in "$at"/log/controller-*; do
        echo "client-go, ${name##*controller-}: $(tail -n 1 "$name")"
        tail -n 1 "$name" | jq -e '.requests > 50 and .events > 20 and .failed == 0 and .lost == 0 and .relists == 0' >/dev/null ||
            fail "client-go lost something: $(grep -v succeeded "$name" | tail -n 5)"
    done
}
# An exec that prints until it is ended, and when that was.
ticks() { # WAY
    local name=$at/log/tick-$1
    kubectl_of "$1" certificate exec --stdin shell -- sh -c 'while echo tick; do read -r line && exit; done' \
        < <(until [[ -e $name-enough ]]; do sleep 0.1; done; echo) >"$name" 2>"$name-error" || true
    date +%s%N >"$name-end"
}
has_changed() { [[ $(cat "$2") != "$1" ]]; }
# Until each load has had three more answers.
go_on() { # FILE...
    local file
    for file; do
        until_true test -e "$file"
        until_true more_lines_than $(($(wc -l <"$file") + 2)) "$file"
    done
}
lost() { # FILE...
    local file all=0
    for file; do
        all=$((all + $(wc -l <"$file")))
        [[ ! -e $file.failed ]] || { echo "$file:"; cat "$file.failed"; }
    done
    ! compgen -G "$at/log/load-*.failed" >/dev/null || fail "requests were lost"
    echo "0 of $all requests failed; the slowest took $(cat "$@" | sort -n | tail -n 1) ms"
}
