# Sourced by run.sh: starts the broker, the proxy, and a sandbox with a bridge.
mkdir -m 755 "$at" "$at/bin" /run/credbroker /run/credbroker-proxy /run/credbroker-proxy/sandbox
mkdir -m 700 "$at/issued" "$at/audit" "$at/log"
install -m 755 "$PROGRAMS/credbroker" "$PROGRAMS/credbroker-exec" "$(command -v kubectl)" "$(command -v controller)" "$at/bin"
install -d -m 700 -o "$proxy_uid" -g "$proxy_uid" "$at/proxy-state"
install -d -m 700 -o "$client_uid" -g "$client_uid" "$at/client"
install -d -m 700 -o "$sandbox_uid" -g "$sandbox_uid" "$at/sandbox"
chown "$proxy_uid:$proxy_uid" /run/credbroker-proxy
echo 3600 >"$at/lifetime"
# The proxy reads the files of the configuration with the same checks as the broker.
install -m 640 -g "$proxy_uid" "$FOLDER/controlplane/admin.kubeconfig" "$at/hub"

# A plugin whose credentials canary.py knows.
cat >"$at/plugin" <<PLUGIN
#!/bin/bash
set -euo pipefail
"$here/../../controlplane/plugin" "$FOLDER/controlplane" "\$1" "c4n4ry-\$1" admins "\$(cat "$at/lifetime")" >"$at/issued/.\$\$"
cat "$at/issued/.\$\$"
mv "$at/issued/.\$\$" "$at/issued/\$1-\$(date +%s%N)"
PLUGIN
chmod 755 "$at/plugin"
provider() { # KIND
    echo "- {name: $1, execConfig: {apiVersion: client.authentication.k8s.io/v1, command: $at/plugin, args: [$1], interactiveMode: Never}}"
}
cat >"$at/config.yaml" <<CONFIG
apiVersion: credbroker.io/v1alpha1
kind: BrokerConfig
clusterProfiles: {kubeconfig: $at/hub, namespaces: [proxy]}
providers:
$(provider token)
$(provider certificate)
audit: {file: $at/audit/broker.jsonl}
access:
- {name: root, peers: {uids: [0]}, allow: {providers: ["*"], clusterProfiles: ["*"], verbs: [admin, list]}}
- {name: proxy, peers: {uids: [$proxy_uid]}, allow: {providers: ["*"], clusterProfiles: ["*"], verbs: [watch, report, list]}}
- {name: clients, peers: {uids: [$client_uid], listeners: [tls]}, allow: {providers: ["*"], clusterProfiles: ["*"], verbs: [proxy]}}
- {name: sandboxes, peers: {listeners: [sandbox]}, allow: {providers: ["*"], clusterProfiles: ["*"], verbs: [proxy]}}
proxy:
  directory: /run/credbroker-proxy
  listen: {name: sandbox, mode: "0666"}
  tls: {}
  audit: {file: $at/proxy-state/audit.jsonl}
CONFIG
hold() { # NAME DESCRIPTORS ADDRESSES UID COMMAND...
    local name=$1
    python3 "$here/hold.py" "$2" "$3" "$at/$name.pid" "$4" "$at/bin/credbroker" "${@:5}" >>"$at/log/$name" 2>&1 &
    echo $! >"$at/$name.holder"
}
hold broker credbroker "$broker_socket" 0 serve --config "$at/config.yaml" --socket "$broker_socket"
until_true credbroker healthcheck
hold proxy credbroker-proxy 127.0.0.1:9465,/run/credbroker-proxy/handles.sock,/run/credbroker-proxy/sandbox/proxy.sock "$proxy_uid" \
    proxy --config "$at/config.yaml" --socket "$broker_socket"
until_true test -s /run/credbroker-proxy/ca.crt
HOME=$at KUBECONFIG= credbroker kubeconfig proxy --output "$at/client/kubeconfig"
chown "$client_uid:$client_uid" "$at/client/kubeconfig"

# In the sandbox there are the programs, the directory of one socket, and no network.
unshare --mount --net --pid --fork bash "$here/sandbox.sh" "$at" "$sandbox_uid" >"$at/log/sandbox" 2>&1 &
sandbox=$!
# Nothing waits for it.
disown
until_true grep -q current-context "$at/sandbox/kubeconfig"
cat "/proc/$sandbox/task/$sandbox/children" >"$at/sandbox.pid"
