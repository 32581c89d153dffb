"""Checks the rendered manifests in a directory: see check.sh.

usage: check.py BROKER DIRECTORY HEADLAMP KUEUE-CONFIGURATION DOCUMENT
"""

import json
import pathlib
import subprocess
import sys

import yaml

BROKER, DIRECTORY, HEADLAMP, KUEUE, DOCUMENT = sys.argv[1], *map(pathlib.Path, sys.argv[2:])
SHIM = "/opt/credbroker/bin/credbroker-exec"
WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet")
STANDARD_LABELS = ("helm.sh/chart", *(f"app.kubernetes.io/{name}" for name in ("name", "instance", "version", "part-of", "managed-by")))


def load(path):
    documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    for document in documents:
        assert document["apiVersion"] and document["kind"] and document["metadata"]["name"], (path, document)
    return documents


def without_chart(document):
    """The object without what a chart adds to each one."""
    pod = document.get("spec", {}).get("template", {})
    for metadata in (document["metadata"], pod.get("metadata", {})):
        for key in STANDARD_LABELS:
            metadata.get("labels", {}).pop(key, None)
        metadata.get("annotations", {}).pop("checksum/credbroker", None)
        for key in ("labels", "annotations"):
            if metadata.get(key) == {}:
                del metadata[key]
    if document["kind"] in WORKLOADS and document["spec"].get("replicas") == 1:
        del document["spec"]["replicas"]
    return document


def by_name(documents, skipped=()):
    """The objects by kind, namespace and name, with lists whose order has no meaning in one order."""
    objects = {}
    for document in map(without_chart, documents):
        if document["kind"] in skipped:
            continue
        metadata = document["metadata"]
        key = (document["kind"], metadata.get("namespace"), metadata["name"])
        assert key not in objects, f"{key} is there twice"
        if document["kind"] in WORKLOADS:
            spec = document["spec"]["template"]["spec"]
            for container in containers(spec):
                container["volumeMounts"].sort(key=lambda mount: mount["name"])
            spec["volumes"].sort(key=lambda volume: volume["name"])
            # The broker, and the copy of the shim.
            spec.get("initContainers", []).sort(key=lambda container: container["name"])
        if document["kind"] == "ConfigMap":
            document["data"] = {name: yaml.safe_load(text) for name, text in document["data"].items()}
        objects[key] = document
    return objects


def containers(spec):
    return spec.get("initContainers", []) + spec["containers"]


def is_restricted(name, container):
    """The container's part of the Pod Security Standard `restricted`, and a read-only root for what is ours."""
    context = container["securityContext"]
    assert context["runAsNonRoot"] is True, name
    assert context["allowPrivilegeEscalation"] is False, name
    assert context["capabilities"] == {"drop": ["ALL"]}, name
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
    assert context.get("runAsUser", 1) != 0 and not context.get("privileged"), name
    if container["name"].startswith("credbroker"):
        assert context["readOnlyRootFilesystem"] is True, name
        assert context["runAsUser"] == context["runAsGroup"] == 2001, name
        assert container["resources"]["limits"]["memory"], name


def is_sidecar(name, spec, has_shim):
    """The broker comes before its clients, in a volume that they cannot write, and no client has its uid."""
    broker = next(container for container in spec["initContainers"] if container["name"] == "credbroker")
    assert broker["restartPolicy"] == "Always", name
    for probe in ("startupProbe", "livenessProbe"):
        assert broker[probe]["exec"]["command"] == ["/usr/bin/credbroker", "healthcheck"], name
    mounts = {mount["name"]: mount for mount in broker["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert mounts.keys() <= volumes.keys(), f"{name}: a mount without a volume"
    assert volumes["credbroker"]["emptyDir"]["medium"] == "Memory", name
    assert volumes["credbroker-config"]["configMap"] == {"name": "credbroker"}, name
    assert "subPath" not in mounts["credbroker-config"] and mounts["credbroker-config"]["readOnly"], name
    for client in spec["containers"]:
        mounts = {mount["name"]: mount for mount in client["volumeMounts"]}
        assert mounts["credbroker"]["readOnly"] is True, name
        assert mounts["credbroker"]["mountPath"] == "/run/credbroker", name
        assert {"name": "CREDBROKER_BROKER_UID", "value": "2001"} in client["env"], name
        assert client["securityContext"].get("runAsUser") != 2001, name
        if has_shim:
            assert mounts["credbroker-exec"] == {
                "name": "credbroker-exec", "mountPath": "/opt/credbroker", "readOnly": True,
            }, name
            assert "credbroker-exec" in volumes, name
    return broker


def accepts(name, text):
    """`credbroker validate` has no problem and no warning with a configuration."""
    path = DIRECTORY / "configuration"
    path.write_text(text)
    path.chmod(0o600)
    result = subprocess.run([BROKER, "validate", "--config", path], capture_output=True, text=True, check=False)
    output = result.stdout + result.stderr
    assert result.returncode == 0 and "warning" not in output and ": ok, " in output, f"{name}: {output}"
    return yaml.safe_load(text)


def serves(name, config, spec):
    """The socket is where clients look, in the volume that they mount, and the broker's uid is known to the rules."""
    assert config["listen"] == {
        "socket": "/run/credbroker/credbroker.sock", "mode": "0666", "sharedDirectory": True,
    }, name
    uids = {uid for rule in config["access"] for uid in rule["peers"]["uids"]}
    known = {container["securityContext"].get("runAsUser") for container in containers(spec)} - {None}
    assert known <= uids, f"{name}: no access rule for one of {known}"
    in_cluster = "clusterProfiles" in config
    assert in_cluster == any(volume["name"] == "credbroker-hub" for volume in spec["volumes"]), name


def is_scraped(name, config, document):
    """The port, the label and the configuration of metrics go together: other hosts reach them only where it is meant."""
    template = document["spec"]["template"]
    broker = next(container for container in template["spec"]["initContainers"] if container["name"] == "credbroker")
    ports = [port["containerPort"] for port in broker.get("ports", []) if port.get("name") == "metrics"]
    has_label = template["metadata"]["labels"].get("credbroker.io/metrics") == "true"
    assert has_label == ("metrics" in config) == bool(ports), name
    for port in ports:
        assert config["metrics"]["exposure"] == "Pod", name
        assert config["metrics"]["listen"] in (f"0.0.0.0:{port}", f"[::]:{port}"), name
    return bool(ports)


checked = scraped = 0
for path in sorted(DIRECTORY.glob("*.yaml")):
    documents = load(path)
    configs = [
        accepts(path.name, document["data"]["config.yaml"])
        for document in documents
        if document["kind"] == "ConfigMap"
    ]
    assert len(configs) == 1, path
    for document in documents:
        if document["kind"] not in WORKLOADS:
            continue
        name, spec = f"{path.name}: {document['metadata']['name']}", document["spec"]["template"]["spec"]
        for container in containers(spec):
            is_restricted(f"{name}: {container['name']}", container)
        if document["metadata"].get("labels", {}).get("credbroker.io/sidecar") == "true":
            is_sidecar(name, spec, has_shim=True)
            serves(name, configs[0], spec)
            checked += 1
            scraped += is_scraped(name, configs[0], document)
        else:
            assert "initContainers" not in spec, f"{name}: a sidecar without the label"
assert (checked, scraped) == (13, 3), (checked, scraped)


def same(one, other, left_out=("Namespace",)):
    """Two files have the same objects, but for those of some kinds. Returns those of the first."""
    objects, others = (by_name(load(DIRECTORY / file), left_out) for file in (one, other))
    for key in objects.keys() | others.keys():
        texts = json.dumps(objects.get(key)), json.dumps(others.get(key))
        assert objects.get(key) == others.get(key), f"{key} differs:\n{one}: {texts[0]}\n{other}: {texts[1]}"
    return objects


example = same("example.yaml", "helm.yaml")
same("example-image.yaml", "helm-image.yaml")
same("helm-own.yaml", "helm.yaml", ("ServiceAccount",))
same("documented.yaml", "example.yaml", ("Namespace", "Role", "RoleBinding"))
metrics = same("metrics.yaml", "helm-metrics.yaml")
assert metrics.keys() - example.keys() == {
    ("PodMonitor", "controllers", "credbroker"), ("NetworkPolicy", "controllers", "credbroker-metrics"),
}, metrics.keys()
[endpoint] = metrics["PodMonitor", "controllers", "credbroker"]["spec"]["podMetricsEndpoints"]
[rule] = metrics["NetworkPolicy", "controllers", "credbroker-metrics"]["spec"]["ingress"]
assert endpoint["port"] == rule["ports"][0]["port"] == "metrics" and len(rule["ports"]) == 1, rule
[section] = [document["data"]["config.yaml"]["metrics"] for key, document in metrics.items() if key[0] == "ConfigMap"]
assert section == {"listen": "0.0.0.0:9464", "exposure": "Pod", "providerNames": True}, section
image = by_name(load(DIRECTORY / "helm-image.yaml"))["Deployment", "controllers", "controller"]
assert {
    "name": "credbroker-exec",
    "image": {"reference": "credbroker-exec:0.1.0", "pullPolicy": "IfNotPresent"},
} in image["spec"]["template"]["spec"]["volumes"]
assert [key[0] for key in by_name(load(DIRECTORY / "helm-none.yaml"))] == ["ConfigMap"]

argocd = load(DIRECTORY / "argocd.yaml")
cluster = next(document for document in argocd if document["kind"] == "Secret")
stanza = json.loads(cluster["stringData"]["config"])["execProviderConfig"]
names = [provider["name"] for provider in accepts("argocd", next(
    document["data"]["config.yaml"] for document in argocd if document["kind"] == "ConfigMap"))["providers"]]
assert stanza["command"] == SHIM and stanza["args"] == ["--provider", *names], stanza

kueue = yaml.safe_load(KUEUE.read_text())["multiKueue"]["clusterProfile"]["accessProviders"]
assert [(item["name"], item["execConfig"]["command"], item["execConfig"]["args"]) for item in kueue] == [
    ("gke", SHIM, ["--provider", "gke"]),
]
[documented] = [block[4:] for block in DOCUMENT.read_text().split("```") if block.startswith("yaml\nexec:")]
assert yaml.safe_load(documented) == {"exec": kueue[0]["execConfig"]}, documented

# The values are for a chart that is not here: they have the same container and volumes as the component.
values = yaml.safe_load((HEADLAMP / "values.yaml").read_text())
pod = {
    "initContainers": values["initContainers"],
    "volumes": values["volumes"],
    "containers": [{key: values[key] for key in ("env", "volumeMounts", "securityContext")} | {"name": "headlamp"}],
}
for container in containers(pod):
    is_restricted("headlamp", container)
broker = is_sidecar("headlamp", pod, has_shim=False)
spec = example["Deployment", "controllers", "controller"]["spec"]["template"]["spec"]
broker["volumeMounts"].sort(key=lambda mount: mount["name"])
assert broker == next(container for container in spec["initContainers"] if container["name"] == "credbroker")
known = {volume["name"]: volume for volume in spec["volumes"]}
assert all(volume == known[volume["name"]] for volume in values["volumes"]), "headlamp's volumes"
manifests = load(HEADLAMP / "manifests.yaml")
serves("headlamp", accepts("headlamp", manifests[0]["data"]["config.yaml"]), pod)
inventory = values["config"]["clusterInventory"]
command = inventory["accessProvidersConfig"]["providers"][0]["execConfig"]["command"]
assert command == inventory["plugins"][0]["mountPath"] + "/bin/credbroker-exec"
print(f"{checked + 1} workloads, {len(list(DIRECTORY.glob('*.yaml')))} files")
