#!/bin/bash
# Builds the packages, twice with equal digests, and installs, upgrades, removes and purges them in a small Debian, whose
# systemctl records what it is asked for.
#
# usage: deploy/packages/check.sh BROKER SHIM
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(realpath "$here/../..")
fail() { echo "$*" >&2; exit 1; }
out=$root/target/packages
arch=$(dpkg --print-architecture)
rm -rf "$out"
"$here/build.sh" "$1" "$2" 0.0.1
first=$(sha256sum "$out"/*.deb)
"$here/build.sh" "$1" "$2" 0.0.1 >/dev/null
[[ $(sha256sum "$out"/*.deb) == "$first" ]] || fail "two builds differ"
"$here/build.sh" "$1" "$2" 0.0.2 >/dev/null

reason=$("$root/deploy/base.sh") || { echo "SKIPPED: installing the packages: $reason"; exit; }
debian=$(mktemp -d --tmpdir="$root/target")
trap 'rm -rf "$debian"' EXIT
cp -a "$root/target/base/." "$debian"
cp "$out"/*.deb "$debian/tmp"
mkdir -p "$debian/run/systemd/system"
printf '#!/bin/sh\necho "$@" >>/tmp/systemctl\n' >"$debian/usr/bin/systemctl"
chmod 0755 "$debian/usr/bin/systemctl"
in_debian() { chroot "$debian" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
asked() { cat "$debian/tmp/systemctl" 2>/dev/null; rm -f "$debian/tmp/systemctl"; }
expect() { [[ $2 == "$3" ]] || fail "$1: systemctl was asked for: $2"; }

in_debian dpkg --install "/tmp/credbroker_0.0.1_$arch.deb" "/tmp/credbroker-exec_0.0.1_$arch.deb" >/dev/null
expect install "$(asked)" "daemon-reload"
in_debian credbroker --version
in_debian kubectl-credbroker --version
in_debian credbroker-exec --version
for file in lib/systemd/system/credbroker.service lib/systemd/user/credbroker.socket share/man/man1/credbroker.1.gz \
    share/bash-completion/completions/credbroker lib/sysusers.d/credbroker.conf; do
    [[ -s $debian/usr/$file ]] || fail "no /usr/$file"
done
mkdir -p "$debian/etc/credbroker"
echo "kind: BrokerConfig" >"$debian/etc/credbroker/config.yaml"
in_debian dpkg --install "/tmp/credbroker_0.0.2_$arch.deb" "/tmp/credbroker-exec_0.0.2_$arch.deb" >/dev/null
expect upgrade "$(asked)" $'daemon-reload\ndaemon-reload\ntry-restart credbroker.service'
[[ -e $debian/etc/credbroker/config.yaml ]] || fail "an upgrade removed the configuration"
in_debian dpkg --remove credbroker credbroker-exec >/dev/null
expect remove "$(asked)" $'disable --now credbroker.socket credbroker.service\ndaemon-reload'
[[ -e $debian/etc/credbroker/config.yaml ]] || fail "removing removed the configuration"
[[ ! -e $debian/usr/bin/credbroker && ! -L $debian/usr/bin/kubectl-credbroker ]] || fail "programs are left"
in_debian dpkg --purge credbroker credbroker-exec >/dev/null 2>&1
left=$(find "$debian" -xdev -path "$debian/tmp" -prune -o -name '*credbroker*' -print)
[[ -z $left ]] || fail "left after purge: $left"
echo "the packages install, upgrade, and leave nothing"
