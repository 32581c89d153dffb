# shellcheck shell=bash
# Sourced by build.sh: the image of the static broker, with a plugin that is a static program, as a sidecar would run it.

# try_static IMAGE SHIM WORK
try_static() {
    local shim=$2 dir=$3/static name probe server broker
    mkdir -p "$dir"/{image,run,etc,tmp}
    chmod 0755 "$3" "$dir" "$dir/etc"
    chmod 1777 "$dir/run" "$dir/tmp"
    cat >"$dir/plugin.c" <<'PLUGIN'
#include <stdio.h>
int main(void) {
    return puts("{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\","
                "\"status\": {\"token\": \"from-a-static-plugin\"}}") < 0;
}
PLUGIN
    gcc -static -o "$dir/image/login" "$dir/plugin.c"
    printf 'FROM %s\nCOPY --chmod=0755 login /usr/local/bin/\n' "$1" >"$dir/image/Containerfile"
    b bud --quiet --pull-never --signature-policy "$3/policy.json" --tag with-static-plugin "$dir/image" >/dev/null

    # A hub with a name, and with a certificate that only the image's own list of authorities vouches for.
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority \
        -keyout "$dir/ca.key" -out "$dir/ca.pem" 2>/dev/null
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=hub.test -keyout "$dir/hub.key" 2>/dev/null |
        openssl x509 -req -days 2 -CA "$dir/ca.pem" -CAkey "$dir/ca.key" -CAcreateserial \
            -extfile <(echo subjectAltName=DNS:hub.test) -out "$dir/hub.pem" 2>/dev/null
    python3 "$here/hub.py" "$dir/hub.pem" "$dir/hub.key" >"$dir/hub" &
    server=$!
    await "the hub's port" test -s "$dir/hub"
    cat >"$dir/etc/config.yaml" <<'CONFIG'
apiVersion: credbroker.io/v1alpha1
kind: BrokerConfig
listen: {socket: /run/credbroker/credbroker.sock, mode: "0666", sharedDirectory: true}
providers:
- name: login
  execConfig: {apiVersion: client.authentication.k8s.io/v1, command: login, interactiveMode: Never}
clusterProfiles: {kubeconfig: /etc/credbroker/hub, namespaces: [fleet]}
access:
- {name: root, peers: {uids: [0, 2001]}, allow: {providers: ["*"], verbs: [get, list]}}
CONFIG
    cat >"$dir/etc/hub" <<HUB
apiVersion: v1
kind: Config
clusters: [{name: hub, cluster: {server: "https://hub.test:$(head -n 1 "$dir/hub")"}}]
users: [{name: hub, user: {token: token-of-the-hub}}]
contexts: [{name: hub, context: {cluster: hub, user: hub}}]
current-context: hub
HUB
    chmod 0644 "$dir"/etc/* "$dir/ca.pem"
    chown -R 2001:2001 "$dir/etc"
    # Two commands that begin in one container at a time make the same directories, and one fails.
    name=$(container --add-host hub.test:127.0.0.1 with-static-plugin)
    probe=$(container with-static-plugin)
    in_static() { # CONTAINER ARGUMENT...
        b run --env HOME=/tmp --volume "$dir/run:/run/credbroker" --volume "$dir/etc:/etc/credbroker:ro" \
            --volume "$dir/tmp:/tmp" --volume "$dir/ca.pem:/etc/ssl/certs/ca-certificates.crt:ro" "$1" -- /usr/bin/credbroker "${@:2}"
    }
    # In its own namespace of processes, which ends with the first of them: buildah passes no signal on to the broker.
    export -f b in_static
    export dir out work
    unshare --pid --mount-proc --fork --kill-child bash -c 'in_static "$@"' - "$name" serve \
        --config /etc/credbroker/config.yaml >"$dir/log" 2>&1 &
    broker=$!
    await "the broker" in_static "$probe" healthcheck
    await "a request to the hub" grep -q '^GET /apis/multicluster.x-k8s.io/.* Bearer token-of-the-hub$' "$dir/hub"
    CREDBROKER_BROKER_UID=2001 "$shim" --socket "$dir/run/credbroker.sock" --provider login | grep -q from-a-static-plugin ||
        { cat "$dir/log" >&2; fail "no credential from the static broker"; }
    kill -KILL "$broker" "$server"
    wait "$broker" "$server" 2>/dev/null || true
    b rm "$name" "$probe" >/dev/null
    b rmi with-static-plugin >/dev/null
    echo "the static broker serves, runs a static plugin, and finds its hub by name and by the certificates of its image"
}

# await WHAT COMMAND...: until the command succeeds, for at most 20 s
await() {
    local end=$((SECONDS + 20))
    until "${@:2}" >/dev/null 2>&1; do
        ((SECONDS < end)) || { cat "$dir/log" >&2 || true; fail "never came: $1"; }
        sleep 0.1
    done
}
