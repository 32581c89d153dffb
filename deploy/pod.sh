#!/bin/bash
# Runs the containers of the Argo CD example as a kubelet does, without one: each has its own root, PID and mount namespace,
# uid and mounts. Command lines, variables, uids and the configuration are those of the rendered manifests.
#
# usage: deploy/pod.sh BROKER SHIM DIRECTORY     DIRECTORY has argocd.yaml, as deploy/check.sh renders it
set -euo pipefail
if [[ ${IN_NAMESPACE-} != yes ]]; then
    if ! unshare --mount --pid --fork true 2>/dev/null; then
        echo "SKIPPED: the containers of a pod need root and namespaces"
        exit
    fi
    # The first process of the PID namespace: what is left of the containers ends with it.
    IN_NAMESPACE=yes exec unshare --mount --pid --fork --kill-child --mount-proc "$0" "$@"
fi
broker=$1 shim=$2 work=$3
fail() { echo "$*" >&2; cat "$work/broker.log" >&2 || true; exit 1; }
python3 -c 'import json, sys, yaml; json.dump([d for d in yaml.safe_load_all(sys.stdin) if d], sys.stdout)' \
    <"$work/argocd.yaml" >"$work/argocd.json"
object() { jq -er --arg kind "$1" --arg name "$2" ".[] | select(.kind == \$kind and .metadata.name == \$name) | $3" "$work/argocd.json"; }
container() { object StatefulSet argocd-application-controller ".spec.template.spec | (.initContainers + .containers)[] | select(.name == \"$1\") | $2"; }

# What the images have.
root=$work/root
mkdir -p "$root"
mount -t tmpfs -o mode=0755 root "$root"
mkdir -p "$root"/{usr/bin,usr/lib,usr/lib64,proc,dev,tmp,etc/credbroker,run/credbroker,opt/credbroker}
for name in bin lib lib64; do ln -s "usr/$name" "$root/$name"; done
for name in lib lib64; do mount --bind "/usr/$name" "$root/usr/$name"; done
for name in credbroker credbroker-exec; do touch "$root/usr/bin/$name"; done
mount --bind "$broker" "$root/usr/bin/credbroker"
mount --bind "$shim" "$root/usr/bin/credbroker-exec"
for name in setpriv install touch; do cp "/usr/bin/$name" "$root/usr/bin"; done
cp /bin/dash "$root/usr/bin/sh"
touch "$root/dev/null"
mount --bind /dev/null "$root/dev/null"
# The plugin counts its runs in its home, which is /tmp in the broker's container.
expires=$(date -u -d '+1 hour' +%Y-%m-%dT%H:%M:%SZ)
cat >"$root/usr/bin/aws" <<PLUGIN
#!/bin/sh
[ "\$*" = "eks get-token --cluster-name prod --region eu-west-1" ] || exit 3
echo run >>"\$HOME/runs"
echo '{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential",
"status": {"token": "token-of-prod", "expirationTimestamp": "$expires"}}'
PLUGIN
chmod 0755 "$root/usr/bin/aws"

# The volumes, with owners and modes as a kubelet makes them.
volumes=$work/volumes
mkdir -p "$volumes"/{run,tmp,config,shim}
mount -t tmpfs -o mode=1777,size=1m run "$volumes/run"
mount -t tmpfs -o mode=1777,size=64m tmp "$volumes/tmp"
mount -t tmpfs -o mode=0777 config "$volumes/config"
chmod 0777 "$volumes/shim"
configmap() {
    mkdir "$volumes/config/..$1"
    cat >"$volumes/config/..$1/config.yaml"
    chmod 0644 "$volumes/config/..$1/config.yaml"
    ln -s "..$1" "$volumes/config/..data_tmp"
    mv -T "$volumes/config/..data_tmp" "$volumes/config/..data"
    [[ -L $volumes/config/config.yaml ]] || ln -s ..data/config.yaml "$volumes/config/config.yaml"
}
object ConfigMap credbroker '.data["config.yaml"]' >"$work/config"
configmap 1 <"$work/config"

# enter UID [VARIABLE=VALUE...] -- COMMAND...: in the mount namespace of a container.
cat >"$work/enter" <<'ENTER'
set -eu
root=$1 uid=$2
shift 2
variables=()
while [[ $1 != -- ]]; do variables+=("$1"); shift; done
shift
mount -t proc proc "$root/proc"
mount -o remount,bind,ro "$root"
exec env -i PATH=/usr/bin "${variables[@]}" /usr/sbin/chroot "$root" /usr/bin/setpriv --reuid "$uid" --regid "$uid" --clear-groups \
    --no-new-privs --bounding-set=-all --inh-caps=-all -- "$@"
ENTER
isolated() { unshare --mount --pid --fork --kill-child "$@"; }
in_broker() { # COMMAND...
    isolated bash -c '
        volumes=$1 root=$2; shift 2
        mount --bind "$volumes/run" "$root/run/credbroker"
        mount --bind "$volumes/tmp" "$root/tmp"
        mount --bind "$volumes/config" "$root/etc/credbroker"
        mount -o remount,bind,ro "$root/etc/credbroker"
        exec "$@"' - "$volumes" "$root" bash "$work/enter" "$root" "$(container credbroker .securityContext.runAsUser)" \
        HOME="$(container credbroker '.env[] | select(.name == "HOME") | .value')" -- "$@"
}
in_client() { # UID COMMAND...
    local uid=$1
    shift
    isolated bash -c '
        volumes=$1 root=$2; shift 2
        mount --bind "$volumes/run" "$root/run/credbroker"
        mount --bind "$volumes/shim" "$root/opt/credbroker"
        mount -o remount,bind,ro "$root/run/credbroker"
        mount -o remount,bind,ro "$root/opt/credbroker"
        exec "$@"' - "$volumes" "$root" bash "$work/enter" "$root" "$uid" \
        "KUBERNETES_EXEC_INFO={\"apiVersion\":\"$version\",\"kind\":\"ExecCredential\",\"spec\":{\"interactive\":false}}" \
        "CREDBROKER_BROKER_UID=${broker_uid:-$(container argocd-application-controller '.env[] | select(.name == "CREDBROKER_BROKER_UID") | .value')}" -- "$@"
}
mapfile -t serve < <(container credbroker '(.command + .args)[]')
mapfile -t startup < <(container credbroker '.startupProbe.exec.command[]')
mapfile -t copy < <(container credbroker-exec '.command[]')
version=$(object Secret cluster-prod '.stringData.config | fromjson | .execProviderConfig.apiVersion')
mapfile -t stanza < <(object Secret cluster-prod '.stringData.config | fromjson | .execProviderConfig | .command, .args[]')

start() {
    in_broker "${serve[@]}" >>"$work/broker.log" 2>&1 &
    sidecar=$!
    local tries=0
    # A kubelet runs the probe in the container. Here it is another process of the broker's uid, with the same mounts.
    until in_broker "${startup[@]}" >"$work/probe" 2>&1; do
        kill -0 "$sidecar" 2>/dev/null || fail "the broker ended: $(cat "$work/probe")"
        ((tries += 1)) && ((tries < 100)) || fail "the startup probe never passed: $(cat "$work/probe")"
        sleep 0.2
    done
}
runs() { wc -l <"$volumes/tmp/runs"; }
gets() { in_client "$1" "${stanza[@]}" >"$work/credential" 2>"$work/error"; }
is_denied() { # WHAT, and the exit code of what came before
    [[ $2 == 77 ]] || fail "$1: exit code $2, $(cat "$work/error")"
    echo "$1: $(cat "$work/error")"
}

isolated bash -c 'mount --bind "$1/shim" "$2/opt/credbroker"; shift 1; exec "${@:2}"' - "$volumes" "$root" \
    bash "$work/enter" "$root" 2001 -- "${copy[@]}"
start
echo "the startup probe passes"
gets 999 || fail "the client has no credential: $(cat "$work/error")"
# The shim reports the expiry a little early, so that clients refresh in time.
jq -e --arg expires "$expires" --arg version "$version" '.apiVersion == $version and .status.token == "token-of-prod" and
    (($expires | fromdate) - (.status.expirationTimestamp | fromdate) | . >= 0 and . <= 60)' "$work/credential" >/dev/null || fail "not the plugin's credential: $(cat "$work/credential")"
gets 999
[[ $(runs) == 1 ]] || fail "the plugin ran $(runs) times for two requests"
echo "uid 999 gets the plugin's credential with its expiry, on a read-only mount"
if in_client 999 /usr/bin/touch /run/credbroker/x 2>/dev/null; then fail "a client can write beside the socket"; fi

code=0; gets 1000 || code=$?
is_denied "uid 1000, without an access rule" "$code"
code=0; broker_uid=2002 gets 999 || code=$?
is_denied "uid 999, which expects another broker" "$code"

sed 's/uids: \[999\]/uids: [999, 1000]/' "$work/config" | configmap 2
tries=0
until gets 1000; do
    ((tries += 1)) && ((tries < 100)) || fail "the new rule is not used: $(cat "$work/error")"
    sleep 0.2
done
[[ $(runs) == 1 ]] || fail "the plugin ran again for another access rule"
echo "the ConfigMap's change is active"

# Only this PID namespace is visible here.
pkill -KILL --exact credbroker
wait "$sidecar" || true
start
gets 999 || fail "no credential after a restart: $(cat "$work/error")"
[[ $(runs) == 2 ]] || fail "the plugin ran $(runs) times"
echo "a killed broker is back in the same volume"

code=0
pkill -TERM --exact credbroker
wait "$sidecar" || code=$?
[[ $code == 0 ]] || fail "exit code $code after SIGTERM"
