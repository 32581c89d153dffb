"""Renders the chart with each of its values: see check.sh.

usage: chart.py HELM CHART DIRECTORY      writes helm-every.yaml to the directory
"""

import copy
import json
import pathlib
import shutil
import subprocess
import sys

import yaml

HELM, CHART, DIRECTORY = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
TESTDATA = CHART.parent / "testdata"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


def render(values, chart=CHART):
    """The output of `helm template`, or its error."""
    result = subprocess.run(
        [HELM, "template", "test", chart, "--namespace", "controllers", "--kube-version", "1.35.0", "--values", "-"],
        input=json.dumps(values), capture_output=True, text=True, check=False,
    )
    return result.stdout if result.returncode == 0 else "error: " + result.stderr


def objects(values, chart=CHART):
    rendered = render(values, chart)
    assert not rendered.startswith("error: "), rendered
    return [document for document in yaml.safe_load_all(rendered) if document]


def properties(schema, at=""):
    """The paths of all values that the schema of the chart names itself, those of Kubernetes' own objects excluded."""
    for name, inner in schema["properties"].items():
        path = f"{at}{name}"
        yield from properties(inner, path + ".") if "properties" in inner else [path]


def value(document, path):
    for name in path.split("."):
        document = document[name]
    return document


def leaves(node):
    if isinstance(node, dict):
        for name, inner in node.items():
            yield from leaves(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from leaves(inner)
    else:
        yield node


def replaced(path, new):
    changed = copy.deepcopy(every)
    *parents, name = path.split(".")
    inner = changed
    for parent in parents:
        inner = inner[parent]
    inner[name] = new
    return changed


# The values that are the default, because others need them.
SAME = ("uid", "workload.enabled", "metrics.podMonitor.enabled", "metrics.networkPolicy.enabled")

# The schema, the values file, the README and the test data name the same values.
every = yaml.safe_load((TESTDATA / "every.yaml").read_text())
names = [path for path in properties(SCHEMA) if path != "global"]
readme = (CHART / "README.md").read_text()
for path in names:
    value(DEFAULTS, path)
    value(every, path)
    assert f"| `{path}` |" in readme, f"README.md does not describe {path}"
    assert value(every, path) != value(DEFAULTS, path) or path in SAME, f"every.yaml has the default of {path}"
assert readme.count("\n| `") == len(names), "README.md describes a value that is not in the schema"

# Each value is in what is rendered.
whole = objects(every)
configuration = next(yaml.safe_load(document["data"]["config.yaml"]) for document in whole if document["kind"] == "ConfigMap")
metrics = {"listen": "[::]:9465", "exposure": "Pod", "providerNames": False}
assert configuration == every["config"] | {"metrics": metrics}, configuration
rendered = {str(leaf) for leaf in leaves(whole)}
for path in names:
    if path in ("config", "shim", "networkPolicy.enabled", "networkPolicy.metadata", "workload.enabled", "metrics.address"):
        continue
    for leaf in leaves(value(every, path)):
        assert str(leaf) in rendered, f"{path}: {leaf} is not rendered"
(DIRECTORY / "helm-every.yaml").write_text(render(every))

# Standard labels on each object, and the user's.
for document in whole:
    metadata = document["metadata"]
    wanted = {
        "helm.sh/chart": "credbroker-0.1.0", "app.kubernetes.io/name": "every", "app.kubernetes.io/instance": "test",
        "app.kubernetes.io/version": "0.1.0", "app.kubernetes.io/part-of": "credbroker",
        "app.kubernetes.io/managed-by": "Helm", "example.com/label": "of-all",
    }
    assert wanted.items() <= metadata["labels"].items(), metadata
    assert metadata["annotations"]["example.com/annotation"] == "on-all", metadata


def checksum(values):
    [workload] = [document for document in objects(values) if document["kind"] == "Deployment"]
    return workload["spec"]["template"]["metadata"]["annotations"]["checksum/credbroker"]


# New pods for the keys that need a restart, and for no others.
for path, new, is_restarted in [
    ("config.listen", {"socket": "/run/credbroker/other.sock"}, True),
    ("metrics.providerNames", True, True),
    ("config.audit", {"file": "/tmp/audit"}, True),
    ("config.limits", {"connections": 10}, True),
    ("config.limits", {"bytes": "10Mi"}, True),
    ("config.limits", {"pluginRuns": 4}, False),
    ("config.providers", [], False),
    ("config.access", [], False),
    ("labels", {}, False),
]:
    assert (checksum(replaced(path, new)) != checksum(every)) == is_restarted, path

# The network lets the pod reach what is named, and nothing else.
policies = {document["metadata"]["name"]: document["spec"] for document in whole if document["kind"] == "NetworkPolicy"}
policy, scraping = policies["credbroker-egress"], policies["credbroker-metrics"]
[pod] = [document["spec"]["template"] for document in whole if document["kind"] == "Deployment"]
assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items(), policy
reached = {
    (peer.get("ipBlock", {}).get("cidr", "dns"), port["protocol"], port["port"])
    for rule in policy["egress"] for peer in rule["to"] for port in rule["ports"]
}
assert policy["policyTypes"] == ["Egress"] and reached == {
    ("dns", "UDP", 53), ("dns", "TCP", 53), ("192.0.2.0/24", "TCP", 6444),
    ("169.254.170.23/32", "TCP", 80), ("fd00:ec2::23/128", "TCP", 80),
    ("169.254.169.252/32", "TCP", 987), ("169.254.169.252/32", "TCP", 988),
    ("169.254.169.254/32", "TCP", 80), ("169.254.169.254/32", "TCP", 8080),
}, reached

# The scraper reaches the metrics, and the other rules are the user's.
[monitor] = [document["spec"] for document in whole if document["kind"] == "PodMonitor"]
for selector in (monitor["selector"], scraping["podSelector"]):
    assert selector["matchLabels"] == {"credbroker.io/metrics": "true"}, selector
    assert selector["matchLabels"].items() <= pod["metadata"]["labels"].items(), pod["metadata"]
values = every["metrics"]["networkPolicy"]
assert scraping["policyTypes"] == ["Ingress"], scraping
assert scraping["ingress"] == [{"from": values["from"], "ports": [{"port": "metrics"}]}, *values["ingress"]], scraping

# The component has the same policy, in the namespace of the pods that it selects, and the page's patch has what it says.
policy = next(document for document in objects({"networkPolicy": {"enabled": True, "metadata": ["EKSPodIdentity", "GKE"]}})
              if document["kind"] == "NetworkPolicy")
more = [document for document in yaml.safe_load_all((DIRECTORY / "example-more.yaml").read_text()) if document]
[component] = [document for document in more if document["kind"] == "NetworkPolicy"]
[workload] = [document for document in more if document["kind"] == "Deployment"]
assert component["spec"] == policy["spec"], f"the component: {component}\nthe chart: {policy}"
assert component["metadata"]["namespace"] == workload["metadata"]["namespace"], component
assert policy["spec"]["podSelector"]["matchLabels"].items() <= workload["spec"]["template"]["metadata"]["labels"].items()
[broker] = [item for item in workload["spec"]["template"]["spec"]["initContainers"] if item["name"] == "credbroker"]
assert broker["resources"]["limits"] == {"memory": "512Mi"} and broker["envFrom"] and len(broker["env"]) == 2, broker
assert workload["spec"]["template"]["spec"]["nodeSelector"] and "token" in {item["name"] for item in broker["volumeMounts"]}, broker

# Helm shows notes after an installation alone, so a copy of the chart has them in an object.
noted = DIRECTORY / "noted"
shutil.copytree(CHART, noted)
(noted / "templates/NOTES.txt").rename(noted / "notes")
(noted / "templates/notes.yaml").write_text(
    "kind: Notes\nmetadata: {labels: {}, name: notes}\ntext: {{ tpl (.Files.Get \"notes\") . | quote }}\n")


def notes(values):
    return next(document["text"] for document in objects(values, noted) if document["kind"] == "Notes")


USUAL = """The broker runs in the pod of every as uid 2001. every starts after the broker answers:

  kubectl -n controllers rollout status deployment/every
  kubectl -n controllers exec deployment/every -c credbroker -- credbroker status

The broker reads the ClusterProfiles in the namespace fleet. This namespace must exist.

The broker reads the ClusterProfiles in the namespace other-fleet. This namespace must exist.
"""
assert notes(every) == USUAL, notes(every)
for path, new, text in [
    ("workload.uid", 5, "WARNING: no rule in config.access has the uid 5 of every, so every gets no credential (PEER_DENIED)."),
    ("uid", 5, "WARNING: no rule in config.access has the broker's uid 5, so the broker denies `credbroker status` in its container."),
    ("workload.image", "example.com/controller:1", "WARNING: workload.image is the example image. Set it to your controller's image."),
    ("workload.enabled", False, "The ConfigMap credbroker contains the broker's configuration. Your chart adds the workload."),
]:
    assert text in notes(replaced(path, new)) and text not in USUAL, notes(replaced(path, new))

# What is wrong is refused, and the error names it.
refused = yaml.safe_load((TESTDATA / "refused.yaml").read_text())
for case in refused:
    error = render(replaced(case["at"], case["is"]))
    assert error.startswith("error: ") and case["says"] in error, f"{case}: {error}"
print(f"{len(names)} values of the chart are rendered, {len(refused)} wrong ones are refused")
