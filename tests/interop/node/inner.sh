#!/bin/bash
# The first process of a node. It runs in new namespaces, which start.sh makes, sets them up, starts the programs of the node, and
# reaps orphans. When it ends, the kernel ends every other process of the node, and its mounts and network are gone.
#
# usage: inner.sh DIRECTORY PROGRAMS CONTROLPLANE
set -euo pipefail
[[ $$ == 1 ]] || { echo "inner.sh is run by start.sh" >&2; exit 1; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$1 programs=$2 controlplane=$3
trap 'echo failed >"$folder/started"' EXIT
fail() { echo "$*" >&2; return 1; }

# The node's paths are the same on every machine, and nothing of the machine is changed.
mounts() {
    mount --make-rprivate /
    mount -t sysfs sysfs /sys
    mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    local controllers
    while IFS=: read -r _ controllers _; do
        [[ -n $controllers ]] || continue
        mkdir "/sys/fs/cgroup/${controllers#name=}"
        if [[ $controllers == name=* ]]; then controllers=none,$controllers; fi
        mount -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/${controllers#none,name=}"
    done </proc/self/cgroup
    for directory in /run /var/lib /var/log; do mount -t tmpfs -o mode=755 tmpfs "$directory"; done
    mkdir -p /run/lock /run/node/{folder,programs,config} /var/lib/{cni,containerd,kubelet}
    mkdir -p "$folder"/{containerd,kubelet,settings,log}
    mount --bind "$folder" /run/node/folder
    mount --bind "$programs" /run/node/programs
    mount --bind "$here/config" /run/node/config
    mount --bind "$folder/containerd" /var/lib/containerd
    mount --bind "$folder/kubelet" /var/lib/kubelet
    # A kubelet writes these, which count for the whole machine.
    for setting in vm/{overcommit_memory,panic_on_oom} kernel/{panic,panic_on_oops} kernel/keys/root_max{keys,bytes}; do
        cat "/proc/sys/$setting" >"$folder/settings/${setting##*/}"
        mount --bind "$folder/settings/${setting##*/}" "/proc/sys/$setting"
    done
    # The kernel permits a new proc in a user namespace (`hostUsers: false`) only where it sees one without such mounts.
    mkdir /run/proc
    mount -t proc proc /run/proc
    mount --make-rshared /
}
# The pods' bridge, and the address of the Service `kubernetes`, which is this node's as there is no kube-proxy.
network() {
    ip link set lo up
    ip address add 10.0.0.1/32 dev lo
    # With an address, because a bridge without one takes that of a pod. When that pod ends, the bridge has another address, and
    # what the other pods send is lost until they ask again.
    ip link add cni0 address 02:00:0a:c8:00:01 type bridge
    ip address add 10.200.0.1/24 dev cni0
    ip link set cni0 up
    echo 1 >/proc/sys/net/ipv4/ip_forward
}
# start NAME COMMAND...
start() {
    local name=$1
    shift
    "$@" >"$folder/log/$name.log" 2>&1 &
    echo $! >"$folder/log/$name.pid"
}
await() { # NAME COMMAND...: until the command succeeds, as long as the program runs, for two minutes
    local name=$1 end=$((SECONDS + 120))
    shift
    until "$@" >/dev/null 2>&1; do
        kill -0 "$(cat "$folder/log/$name.pid")" && ((SECONDS < end)) ||
            fail "$name is not ready: $(tail -n 3 "$folder/log/$name.log")"
        sleep 0.1
    done
}
runtime() {
    start containerd containerd --config /run/node/config/containerd.toml
    await containerd ctr version
    ctr --namespace k8s.io images import --local "$programs/images.tar"
}
api() {
    APISERVER_FLAGS="--bind-address=0.0.0.0 --authorization-mode=Node --enable-admission-plugins=NodeRestriction
        --kubelet-client-certificate=admin.pem --kubelet-client-key=admin.key --kubelet-preferred-address-types=InternalIP" \
        SERVER_NAMES=IP:10.0.0.1 SERVER_PORT=443 SERVICE_ACCOUNTS=1 CONTROLPLANE=$controlplane \
        "$here/../controlplane/start.sh" "$folder/controlplane"
    start issuer python3 "$here/issuer.py" "$folder/controlplane" 10.200.0.1 8001
    start kube-scheduler kube-scheduler --kubeconfig="$KUBECONFIG" --leader-elect=false --secure-port=0
    start kube-controller-manager kube-controller-manager --kubeconfig="$KUBECONFIG" --leader-elect=false --secure-port=0 \
        --root-ca-file="$folder/controlplane/ca.pem" --service-account-private-key-file="$folder/controlplane/accounts.key"
}
node() {
    cd "$folder/controlplane"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout node.key \
        -subj /O=system:nodes/CN=system:node:node1 2>/dev/null |
        openssl x509 -req -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -out node.pem 2>/dev/null
    kubectl config view --raw >node.kubeconfig
    sed -i "s#client-certificate-data:.*#client-certificate: $PWD/node.pem#; s#client-key-data:.*#client-key: $PWD/node.key#" \
        node.kubeconfig
    cd /
    start kubelet kubelet --config=/run/node/config/kubelet.yaml --kubeconfig="$folder/controlplane/node.kubeconfig" \
        --node-ip=10.200.0.1 --hostname-override=node1
    await kubelet kubectl wait --for=condition=Ready node/node1 --timeout=1s
}

hostname node1
export PATH=$programs/bin:$controlplane/bin:$PATH HOME=/var/lib KUBECONFIG=$folder/controlplane/admin.kubeconfig
mounts
network
runtime
api
node
trap - EXIT
echo ready >"$folder/started"
while :; do
    wait || true
    # Its children have ended, but orphans come.
    sleep 3600 &
done
