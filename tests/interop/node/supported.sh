#!/bin/bash
# Whether a node can run on this machine. Exits with 77, and says why, where it cannot.
set -euo pipefail
cannot() { echo "$*"; exit 77; }
((EUID == 0)) || cannot "a node needs root"
for program in ip nsenter openssl python3 unshare; do
    command -v "$program" >/dev/null || cannot "this machine has no $program"
done
unshare --mount --net --pid --cgroup --uts --ipc --fork --mount-proc true 2>/dev/null ||
    cannot "this machine permits no new namespaces"
unshare --net ip link add cni0 type bridge 2>/dev/null || cannot "the kernel has no bridges"
grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null || cannot "the kernel has no overlayfs"
for controller in cpu cpuacct cpuset memory pids devices freezer; do
    grep -q ":\([^:]*,\)\?$controller[,:]" /proc/self/cgroup || cannot "the kernel has no cgroup v1 controller $controller"
done
while IFS=: read -r _ controllers path; do
    [[ -n $controllers ]] || continue
    parent=/sys/fs/cgroup/${controllers#name=}${path%/}
    [[ -d $parent ]] || cannot "there is no $parent: the cgroup controllers are not mounted"
    probe=$(mktemp -d --tmpdir="$parent" 2>/dev/null) || cannot "cgroups cannot be made in $parent"
    rmdir "$probe"
done </proc/self/cgroup
