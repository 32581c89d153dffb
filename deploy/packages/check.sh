#!/bin/bash
# Builds the packages, twice with equal digests, and installs, upgrades, removes and purges them in a small Debian with its
# own systemd, in namespaces: the upgrade replaces a broker that serves clients meanwhile.
#
# usage: deploy/packages/check.sh DIRECTORY     with credbroker and credbroker-exec
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(realpath "$here/../..")
fail() { echo "$*" >&2; exit 1; }
out=$root/target/packages
arch=$(dpkg --print-architecture)
rm -rf "$out"
"$here/build.sh" "$1" 0.0.1
first=$(sha256sum "$out"/*.deb)
"$here/build.sh" "$1" 0.0.1 >/dev/null
[[ $(sha256sum "$out"/*.deb) == "$first" ]] || fail "two builds differ"
"$here/build.sh" "$1" 0.0.2 >/dev/null

skip() { echo "SKIPPED: installing the packages: $*"; exit; }
reason=$("$root/deploy/base.sh" systemd) || skip "$reason"
debian=$(mktemp -d --tmpdir="$root/target")
machine=
clients=
end() {
    [[ -z $clients ]] || kill "$clients" 2>/dev/null || true
    [[ -z $machine ]] || { kill -KILL "$machine" && wait "$machine" || true; } 2>/dev/null
    rm -rf "$debian" "$debian.log"
    "$here/machine.sh" --clean "$debian"
}
trap end EXIT
cp -a "$root/target/base-systemd/." "$debian"
cp "$out"/*.deb "$debian/var/tmp"
unshare --pid --mount --uts --ipc --net --cgroup --fork --kill-child true 2>/dev/null || skip "it needs root and namespaces"
"$here/machine.sh" "$debian" >"$debian.log" 2>&1 &
machine=$!
in_debian() {
    local first
    # There is no newline at the end.
    read -r first <"/proc/$machine/task/$machine/children" || [[ ${first-} ]] || return
    nsenter --target "$first" --all --root --wd -- env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}
for _ in {1..300}; do
    state=$(in_debian systemctl is-system-running 2>/dev/null) || true
    [[ $state != running ]] && kill -0 "$machine" 2>/dev/null || break
    sleep 0.2
done
[[ $state == running ]] || skip "systemd does not run in namespaces here: $state $(tail -n 3 "$debian.log")"
is() { [[ $(in_debian systemctl "is-$1" "$2" || true) == "$3" ]] || fail "$2 is not $3 but $(in_debian systemctl "is-$1" "$2" || true)"; }
main() { in_debian systemctl show --value --property MainPID credbroker.service; }
get() { in_debian credbroker-exec --provider sample --timeout 20s; }

in_debian dpkg --install "/var/tmp/credbroker_0.0.1_$arch.deb" "/var/tmp/credbroker-exec_0.0.1_$arch.deb" >/dev/null
is enabled credbroker.socket disabled
is active credbroker.service inactive
in_debian getent group credbroker-clients >/dev/null || fail "no group credbroker-clients"
for program in credbroker kubectl-credbroker credbroker-exec; do in_debian "$program" --version; done
for file in lib/systemd/user/credbroker.socket share/man/man1/credbroker.1.gz share/bash-completion/completions/credbroker; do
    [[ -s $debian/usr/$file ]] || fail "no /usr/$file"
done

cat >"$debian/usr/local/bin/sample" <<'PLUGIN'
#!/bin/sh
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"of-the-package"}}'
PLUGIN
chmod 0755 "$debian/usr/local/bin/sample"
cat >"$debian/etc/credbroker/config.yaml" <<'CONFIG'
apiVersion: credbroker.io/v1alpha1
kind: BrokerConfig
providers:
- name: sample
  execConfig: {apiVersion: client.authentication.k8s.io/v1, command: sample, interactiveMode: Never}
CONFIG
in_debian systemctl enable --now credbroker.socket 2>/dev/null
[[ $(get) == *of-the-package* ]] || fail "no credential: $(in_debian systemctl status credbroker.service)"
is active credbroker.service active
before=$(main)

# Clients that ask all the time notice nothing.
(while [[ ! -e $debian/stop ]]; do get >/dev/null && echo served || echo failed; done >"$debian/served" 2>"$debian/errors") &
clients=$!
in_debian dpkg --install "/var/tmp/credbroker_0.0.2_$arch.deb" "/var/tmp/credbroker-exec_0.0.2_$arch.deb" >/dev/null
for _ in 1 2 3; do get >/dev/null; done
touch "$debian/stop"
wait "$clients"
clients=
! grep -q failed "$debian/served" || fail "$(grep -c failed "$debian/served") clients failed: $(tail -n 3 "$debian/errors")"
is active credbroker.service active
[[ $(main) != "$before" ]] || fail "the broker of before the upgrade is still there"
[[ -s $debian/etc/credbroker/config.yaml ]] || fail "an upgrade removed the configuration"
echo "an upgrade replaces the broker while $(wc -l <"$debian/served") clients are served"

# An upgrade with a mistake in the configuration ends, and the corrected file is enough afterwards.
echo 'mistake: true' >>"$debian/etc/credbroker/config.yaml"
in_debian dpkg --install "/var/tmp/credbroker_0.0.1_$arch.deb" >/dev/null 2>"$debian/errors" ||
    fail "a mistake in the configuration fails the upgrade: $(cat "$debian/errors")"
grep -q 'run: credbroker validate' "$debian/errors" || fail "the upgrade does not name the mistake: $(cat "$debian/errors")"
sed -i '/^mistake: true$/d' "$debian/etc/credbroker/config.yaml"
in_debian systemctl restart credbroker.service
[[ $(get) == *of-the-package* ]] || fail "no credential after the mistake"

in_debian systemctl stop credbroker.socket credbroker.service
in_debian dpkg --install "/var/tmp/credbroker_0.0.1_$arch.deb" >/dev/null 2>&1
is active credbroker.service inactive

in_debian systemctl start credbroker.socket
get >/dev/null
in_debian dpkg --remove credbroker credbroker-exec >/dev/null
[[ $(in_debian systemctl list-units --all --plain --no-legend 'credbroker*') == "" ]] || fail "units are left"
[[ -s $debian/etc/credbroker/config.yaml ]] || fail "removing removed the configuration"
[[ ! -e $debian/usr/bin/credbroker && ! -L $debian/usr/bin/kubectl-credbroker ]] || fail "programs are left"
in_debian test ! -e /run/credbroker/credbroker.sock || fail "the socket is left"
in_debian dpkg --purge credbroker credbroker-exec >/dev/null 2>&1
left=$(find "$debian" -xdev -path "$debian/var/tmp" -prune -o -name '*credbroker*' -print)
[[ -z $left ]] || fail "left after purge: $left"
echo "the packages install, upgrade, and leave nothing"
