#!/bin/bash
# Runs the commands in the README of examples/go as they are written there, in a copy of the files that git has, against a
# broker whose credential rotates twice. protoc is that of setup.sh. The READMEs of the other examples need a real API server:
# the tests in tests/interop/real run their commands.
#
# usage: readme.sh BROKER
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
fail() { echo "readme.sh: $*" >&2; exit 1; }
(($# == 1)) || fail "usage: readme.sh BROKER"
broker=$(realpath "$1")

work=$(mktemp -d)
serving=
end() {
    [[ -z $serving ]] || kill "$serving"
    # Go makes the files of its modules read-only.
    chmod -R u+w "$work"
    rm -rf "$work"
}
trap end EXIT
(cd "$root" && git ls-files -z proto examples | tar -c --null -T -) | tar -x -C "$work"

umask 077
mkdir "$work/run"
socket=$work/run/broker.sock
cat >"$work/plugin" <<'PLUGIN'
#!/bin/sh
echo run >>"$0.runs"
runs=$(wc -l <"$0.runs")
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "c4n4ry-'"$runs"'"}}'
PLUGIN
chmod 700 "$work/plugin"
cat >"$work/config.yaml" <<CONFIG
apiVersion: credbroker.io/v1alpha1
kind: BrokerConfig
providers:
- name: corp
  execConfig: {apiVersion: client.authentication.k8s.io/v1, command: $work/plugin, interactiveMode: Never}
CONFIG
"$broker" serve --config "$work/config.yaml" --socket "$socket" 2>"$work/broker.log" &
serving=$!
for ((i = 0; i < 100; i++)); do
    ! "$broker" healthcheck --socket "$socket" >"$work/health.log" 2>&1 || break
    kill -0 "$serving" 2>/dev/null || fail "the broker ended: $(cat "$work/broker.log")"
    sleep 0.1
done

# The plugin runs again after each of the first two answers of the watch.
rotate() {
    local line watched=0
    while IFS= read -r line; do
        echo "$line"
        [[ $line != "watch "* ]] || ((++watched > 2)) || "$broker" refresh corp --socket "$socket" >/dev/null
    done
}

readme=$work/examples/go/README.md
commands=$(sed -n '/^```sh$/,/^```$/p' "$readme" | grep -v '^```')
commands=${commands//\/run\/credbroker\/credbroker.sock/$socket}
(cd "$work/examples/go" && PATH=$root/target/channels/protoc:$PATH:/usr/local/go/bin bash -euc "${commands//NAME/corp}" 2>"$work/errors") |
    rotate >"$work/output" || fail "$(cat "$work/output" "$work/errors")"
# What the tools print comes before.
sed -E 's/\x1b\[[0-9;]*m//g' "$work/output" | sed -n '/^get generation=/,$p' | tee "$work/said"
names=$(sed -E 's/[ =].*//' "$work/said" | tr '\n' ' ')
[[ $names == "get watch watch watch error message report outcome " ]] || fail "$(cat "$work/output" "$work/errors")"
[[ $(grep -o 'generation=[^ ]*' "$work/said" | sort -u | wc -l) == 3 ]] || fail "there were not three generations"
! grep -q c4n4ry "$work/output" "$work/errors" || fail "a token is printed"
