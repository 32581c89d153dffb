# Sourced by the parts of the case `proxy`, on the node. FOLDER is the directory of the node, and PROGRAMS has credbroker and
# credbroker-exec.
#
# Everything is as systemd/ sets it up: the broker is root's, the proxy and its clients have separate users, which may
# use the targets and may not read their credentials.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
at=/run/proxy-test
proxy_uid=64100 client_uid=64101 sandbox_uid=64102
broker_socket=/run/credbroker/credbroker.sock
ways=(T U) kinds=(token certificate)
# Clients must not send what is for a loopback address there.
elsewhere=http://192.0.2.1:9
declare -A kubeconfigs=([T]=$at/client/kubeconfig [U]=/home/kubeconfig)

fail() { echo "FAILED: $*" >&2; exit 1; }
# Until a command succeeds, for a minute.
until_true() { # COMMAND...
    local end=$((SECONDS + 60))
    until "$@" >"$at/until" 2>&1; do
        ((SECONDS < end)) || fail "$* does not succeed: $(tail -n 3 "$at/until")"
        sleep 0.1
    done
}
credbroker() { "$at/bin/credbroker" "$@" --socket "$broker_socket"; }
# A client without anything of this process's environment: at the port (T), or in the sandbox (U).
client() { # WAY COMMAND...
    local way=$1 as sandbox
    shift
    if [[ $way == T ]]; then
        as=(setpriv --reuid "$client_uid" --regid "$client_uid" --clear-groups --no-new-privs env -i "HOME=$at/client")
    else
        read -r sandbox _ <"$at/sandbox.pid" || true
        as=(nsenter --target "$sandbox" --mount --net --pid --root --wd=/ --setuid "$sandbox_uid" --setgid "$sandbox_uid"
            env -i HOME=/home)
    fi
    "${as[@]}" "PATH=$at/bin:/usr/bin:/bin" "HTTPS_PROXY=$elsewhere" "KUBECONFIG=${kubeconfigs[$way]}" ${settings[@]+"${settings[@]}"} "$@"
}
# Environment of the clients.
settings=()
kubectl_of() { # WAY KIND ARGUMENT...
    local way=$1 kind=$2
    shift 2
    client "$way" kubectl --context "proxy/$kind" --namespace proxy "$@"
}
more_lines_than() { (($(wc -l <"$2") > $1)); } # NUMBER FILE
rotate() { credbroker refresh --all >/dev/null; }
# Ends all processes of clients but the bridge.
end_clients() {
    local pid sandbox
    read -r sandbox _ <"$at/sandbox.pid" || true
    for pid in $(ps -o pid= -u "$client_uid,$sandbox_uid"); do
        ((pid == sandbox)) || kill "$pid" 2>/dev/null || true
    done
}
