#!/bin/bash
# Runs systemd as the first process of a Debian, with its own namespaces and control group, until it is killed.
#
# usage: machine.sh ROOT
#        machine.sh --clean ROOT     removes the control group
set -euo pipefail
# cgroup v1 has a hierarchy for systemd, cgroup v2 one for all.
groups=/sys/fs/cgroup type=(-t cgroup2)
[[ ! -d /sys/fs/cgroup/systemd ]] || groups=/sys/fs/cgroup/systemd type=(-t cgroup -o none,name=systemd)
if [[ $1 == --clean ]]; then
    own=$groups/${2##*/}
    for _ in {1..50}; do
        [[ -d $own ]] || break
        find "$own" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
    done
    exit
fi
if [[ ${IN_NAMESPACE-} != yes ]]; then
    mkdir "$groups/${1##*/}"
    echo $$ >"$groups/${1##*/}/cgroup.procs"
    IN_NAMESPACE=yes exec unshare --pid --mount --uts --ipc --net --cgroup --fork --kill-child "$0" "$1"
fi
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs -o mode=0755 run run
if [[ $groups == /sys/fs/cgroup ]]; then
    mount "${type[@]}" cgroup sys/fs/cgroup
else
    mount -t tmpfs -o mode=0755 cgroup sys/fs/cgroup
    mkdir sys/fs/cgroup/systemd
    mount "${type[@]}" cgroup sys/fs/cgroup/systemd
fi
mount -t tmpfs -o mode=0755 dev dev
for device in null zero full random urandom tty; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/shm dev/pts
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=namespaces chroot . /lib/systemd/systemd --system --log-target=console --show-status=no
