#!/bin/bash
# Checks the units, and that a client that connects before the broker has started waits and is then served.
#
# usage: systemd/check.sh [BROKER [SHIM]]     default: the programs that `cargo build --workspace` makes
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
broker=$(realpath "${1:-$here/../target/debug/credbroker}")
shim=$(realpath "${2:-$here/../target/debug/credbroker-exec}")
# The highest exposure of the system's service that `systemd-analyze security` may report, in tenths (scale 0 to 10): as
# it is shipped, and with drop-ins/strict.conf.
threshold=20
strict_threshold=15

for program in "$broker" "$shim"; do
    [[ -x $program ]] || { echo "no program at $program; build it with: cargo build --workspace" >&2; exit 1; }
done
work=$(mktemp -d)
activation=
trap '[[ -z $activation ]] || kill "$activation" 2>/dev/null || true; rm -rf "$work"' EXIT

echo "-- the units are valid"
# `verify` requires that the program of ExecStart= exists, so these copies name the program that was built.
mkdir -p "$work"/{system,user,run}
chmod 700 "$work/run"
for unit in credbroker{,-proxy}.{socket,service}; do
    sed "s|^ExecStart=/usr/bin/credbroker|ExecStart=$broker|" "$here/$unit" >"$work/system/$unit"
    sed "s|^ExecStart=/usr/bin/credbroker|ExecStart=$broker|" "$here/user/$unit" >"$work/user/$unit"
done
verify() {
    # For some mistakes, such as an unknown option, the exit code is 0 and there is only a message.
    local output
    output=$("$@" 2>&1) || { echo "$output" >&2; return 1; }
    if grep -F "$work" <<<"$output" >&2; then return 1; fi
}
verify systemd-analyze verify --man=no --recursive-errors=no "$work"/system/credbroker{,-proxy}.{socket,service}
XDG_RUNTIME_DIR=$work/run verify \
    systemd-analyze --user verify --man=no --recursive-errors=no "$work"/user/credbroker{,-proxy}.{socket,service}

exposure() { # THRESHOLD WORDS [UNIT]
    echo "-- the service's exposure$2 is at most $(($1 / 10)).$(($1 % 10))"
    systemd-analyze security --offline=true --no-pager --threshold="$1" \
        "$work/system/${3:-credbroker}.service" >"$work/exposure" || {
        cat "$work/exposure"
        echo "the service is more exposed than the threshold" >&2
        exit 1
    }
    grep 'Overall exposure' "$work/exposure"
}
exposure "$threshold" ""
exposure "$strict_threshold" " as the proxy" credbroker-proxy
with() { # DROP-IN UNIT
    mkdir -p "$work/system/$2.d"
    cp "$here/drop-ins/$1.conf" "$work/system/$2.d/"
}
with strict credbroker.service
with clients credbroker.socket
exposure "$strict_threshold" " with drop-ins/strict.conf"

echo "-- the drop-ins are valid"
version=$(systemd-analyze --version | sed -n '1s/^systemd \([0-9]*\).*/\1/p')
if ((version >= 253)); then
    with notify-reload credbroker.service
else
    echo "SKIPPED: drop-ins/notify-reload.conf: systemd $version does not know Type=notify-reload"
fi
verify systemd-analyze verify --man=no --recursive-errors=no "$work"/system/credbroker.{socket,service}

echo "-- sysusers and tmpfiles make the group and the directory"
mkdir -p "$work/root/etc"
systemd-sysusers --root="$work/root" "$here/sysusers.d/credbroker.conf"
grep -q '^credbroker-clients:' "$work/root/etc/group"
systemd-tmpfiles --create --root="$work/root" "$here/tmpfiles.d/credbroker.conf"
[[ $(stat -c %a "$work/root/etc/credbroker") == 755 ]]

echo "-- a shim that connects before the broker has started waits and is served"
socket=$work/run/credbroker.sock
cat >"$work/plugin" <<'PLUGIN'
#!/bin/sh
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"by-activation"}}'
PLUGIN
chmod 755 "$work/plugin"
cat >"$work/config.yaml" <<CONFIG
apiVersion: credbroker.io/v1alpha1
kind: BrokerConfig
providers:
- name: sample
  execConfig:
    apiVersion: client.authentication.k8s.io/v1
    command: $work/plugin
    interactiveMode: Never
CONFIG
chmod 600 "$work/config.yaml"
# The broker starts a second after the first connection; until then only systemd has the socket.
systemd-socket-activate --listen="$socket" --fdname=credbroker \
    /bin/sh -c 'sleep 1; exec "$0" serve --config "$1"' "$broker" "$work/config.yaml" 2>"$work/log" &
activation=$!
for _ in {1..200}; do [[ ! -S $socket ]] || break; sleep 0.05; done
fail() { echo "$1; the broker's log:" >&2; cat "$work/log" >&2; exit 1; }
output=$("$shim" --timeout 20s --socket "$socket" --provider sample) || fail "the shim was not served"
grep -q '"token":"by-activation"' <<<"$output" || fail "the shim did not print the token of the plugin"
# systemd-socket-activate has become the broker.
kill -TERM "$activation"
wait "$activation" || fail "the broker failed after SIGTERM"
activation=
[[ -S $socket ]] || fail "the broker removed the socket of systemd"
echo "served: the broker started on the first connection and kept systemd's socket"
