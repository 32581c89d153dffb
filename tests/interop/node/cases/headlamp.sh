#!/bin/bash
# deploy/examples/headlamp: the pod that Headlamp's chart makes of the values. Its chart and its image cannot be had without a
# registry: a client in the place of Headlamp uses the access provider of the values.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
restricted headlamp
k create serviceaccount headlamp --namespace headlamp >/dev/null
k apply --server-side --filename "$root/deploy/examples/headlamp/manifests.yaml" >/dev/null
python3 - "$root/deploy/examples/headlamp/values.yaml" >"$work/pod.json" <<'POD'
import json, sys, yaml
values = yaml.safe_load(open(sys.argv[1]))
inventory = values["config"]["clusterInventory"]
[plugin], [provider] = inventory["plugins"], inventory["accessProvidersConfig"]["providers"]
[broker] = values["initContainers"]
broker["image"] = "node.test/credbroker-plugins:1"
environment = {"VIA": "shim", "SERVER": "https://10.0.0.1", "EXEC": json.dumps(provider["execConfig"])}
authority = {"name": "CA", "valueFrom": {"configMapKeyRef": {"name": "kube-root-ca.crt", "key": "ca.crt"}}}
volume = plugin["name"] + "-plugin"
client = {
    "name": "headlamp",
    "image": "node.test/controller:1",
    "env": values["env"] + [authority] + [{"name": name, "value": value} for name, value in environment.items()],
    "securityContext": values["securityContext"],
    "volumeMounts": values["volumeMounts"] + [{"name": volume, "mountPath": plugin["mountPath"], "readOnly": True}],
}
spec = {
    "serviceAccountName": "headlamp",
    "initContainers": [broker],
    "containers": [client],
    "volumes": values["volumes"] + [{"name": volume, "image": {"reference": plugin["image"]}}],
}
metadata = {"name": "headlamp", "namespace": "headlamp"}
json.dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, sys.stdout)
POD
k apply --server-side --filename "$work/pod.json" >/dev/null
k wait --namespace headlamp pod/headlamp --for condition=Ready --timeout 120s >/dev/null
until_logged headlamp pod/headlamp headlamp "request 1 succeeded"
(($(issued pod/headlamp) > 0)) || fail "the plugin did not run"
echo "uid 100 gets a credential by the access provider of the values; Headlamp's own program did not run"
k delete namespace headlamp --timeout 60s >/dev/null
