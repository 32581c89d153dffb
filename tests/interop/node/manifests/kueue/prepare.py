"""Kueue's manifests on standard input, prepared for the node, on standard output.

usage: prepare.py MANAGER-CONFIG

MANAGER-CONFIG is merged into the manager's configuration. Without kube-proxy the API server cannot reach a Service: its webhooks
may fail, and there is no aggregated API."""

import sys

import yaml


def merge(into, more):
    for key, value in more.items():
        if isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


with open(sys.argv[1]) as file:
    additions = yaml.safe_load(file)
documents = [d for d in yaml.safe_load_all(sys.stdin) if d and d["kind"] not in ("APIService", "Namespace")]
for document in documents:
    for webhook in document.get("webhooks", ()):
        webhook["failurePolicy"] = "Ignore"
    if document["kind"] == "ConfigMap":
        text = yaml.safe_load(document["data"]["controller_manager_config.yaml"])
        merge(text, additions)
        # MultiKueue connects only where each kind of job is served.
        text["integrations"]["frameworks"] = ["batch/job"]
        document["data"]["controller_manager_config.yaml"] = yaml.safe_dump(text)
    if document["kind"] == "Deployment":
        [manager] = document["spec"]["template"]["spec"]["containers"]
        manager["imagePullPolicy"] = "IfNotPresent"
yaml.safe_dump_all(documents, sys.stdout)
