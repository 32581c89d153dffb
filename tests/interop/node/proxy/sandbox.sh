#!/bin/bash
# The first process of a sandbox, in new namespaces: becomes the bridge, in a root directory with programs and one socket.
#
# usage: sandbox.sh DIRECTORY UID
set -euo pipefail
at=$1 uid=$2 root=$1/root
ip link set lo up
mount --make-rprivate /
mkdir -p "$root"
mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir -p "$root"/{usr,proc,dev,home,run/credbroker-proxy/sandbox} "$root$at/bin"
mkdir -m 1777 "$root/tmp"
for directory in bin lib lib64 sbin; do ln -s "usr/$directory" "$root/$directory"; done
mount --bind -o ro /usr "$root/usr"
mount --bind -o ro "$at/bin" "$root$at/bin"
mount --bind "$at/sandbox" "$root/home"
mount --bind -o ro /run/credbroker-proxy/sandbox "$root/run/credbroker-proxy/sandbox"
mount -t proc proc "$root/proc"
for device in null zero urandom; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
cd "$root"
exec chroot --userspec="$uid:$uid" "$root" /usr/bin/env -i HOME=/home "$at/bin/credbroker" bridge --listen 127.0.0.1:0 >"$root/home/kubeconfig"
