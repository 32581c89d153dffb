"""Runs the configurations of docs/identities.md with fakes of the clouds: see deploy/check.sh.

The chart is rendered with the page's values, a webhook changes the pod, and the broker runs in its container: with the
variables, mounts, modes and uids of the result. Plugins exchange the pod's token at issuers that behave as the documented
ones do, at the same link-local addresses. As root, in mount and network namespaces; skipped otherwise.

usage: check.py BROKER SHIM HELM KUSTOMIZED DIRECTORY      KUSTOMIZED: the example with the page's patches
"""

import base64
import copy
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import yaml

import clouds
from page import CASES, COMMON, DEPLOY, PAGE, has_token, render
from pod import TOOLS, Container, directory, token_mode, write_token

BROKER, SHIM, HELM, KUSTOMIZED = sys.argv[1:5]
WORK = pathlib.Path(sys.argv[5])
CLIENT, PATIENCE = "controller", 60
# Where the fakes are, instead of the names of STS and Entra ID.
FAKES = json.dumps({"env": [
    {"name": "AWS_ENDPOINT_URL_STS", "value": clouds.STS}, {"name": "AZURE_AUTHORITY_HOST", "value": clouds.ENTRA},
]})


def enter_namespaces():
    """Continues in own namespaces, with the link-local addresses of the clouds on loopback."""
    if os.environ.get("IN_NAMESPACES") == "yes":
        addresses = [["addr", "add", f"{address}/32", "dev", "lo"] for address in (clouds.AGENT, clouds.METADATA)]
        for command in (["link", "set", "lo", "up"], *addresses):
            subprocess.run(["ip", *command], check=True)
        return
    missing = [tool for tool in ("ip", "unshare", *TOOLS) if not shutil.which(tool)]
    if missing or subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True, check=False).returncode:
        print("SKIPPED: the identities of pods need root and namespaces", *(f"and {tool}" for tool in missing))
        sys.exit()
    unshare = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    os.execvpe("unshare", [*unshare, sys.executable, *sys.argv], os.environ | {"IN_NAMESPACES": "yes"})


class Running:
    """A pod whose broker answers. `is_real`: its `aws` is the real one."""

    def __init__(self, pod, config, is_real=False):
        self.spec = pod["spec"]
        self.volumes = {name: directory(WORK, "1777") for name in ("credbroker", "credbroker-tmp")}
        self.volumes |= {name: directory(WORK, "0755") for name in ("credbroker-config", "credbroker-exec")}
        (self.volumes["credbroker-config"] / "config.yaml").write_text(config)
        (self.volumes["credbroker-exec"] / "bin").mkdir()
        shutil.copy(SHIM, self.volumes["credbroker-exec"] / "bin/credbroker-exec")
        group = self.spec.get("securityContext", {}).get("fsGroup")
        if group is not None:
            # What the kubelet does to the volumes of such a pod.
            for path in self.volumes.values():
                os.chown(path, 0, group)
                path.chmod(path.stat().st_mode | 0o2070)
        self.token = clouds.projected_token(pod)
        if self.token:
            self.volumes[self.token[0]["name"]] = directory(WORK, "0755")
            self.rotate()
        plugins = directory(WORK, "0755")
        prefix = sys.prefix if is_real and not sys.prefix.startswith("/usr") else None
        real = f'#!/bin/sh\nexec {sys.executable} -m awscli "$@"\n'
        files = {"usr/bin/credbroker": BROKER}
        for name, text in clouds.PLUGINS.items():
            (plugins / name).write_text(real if is_real and name == "aws" else text)
            (plugins / name).chmod(0o755)
            files[f"usr/local/bin/{name}"] = plugins / name
        self.broker = Container(WORK, self.spec, "credbroker", self.volumes, files, prefix)
        self.client = Container(WORK, self.spec, CLIENT, self.volumes, {})
        command = self.broker.item["command"] + self.broker.item["args"]
        self.log = tempfile.TemporaryFile("w+", dir=WORK)
        self.process = self.broker.start(command, stdout=self.log, stderr=self.log)
        deadline, probe = time.monotonic() + PATIENCE, self.broker.item["startupProbe"]["exec"]["command"]
        while (answer := self.broker.run(probe))[0]:
            assert self.process.poll() is None and time.monotonic() < deadline, f"{answer}\n{self.logged()}"

    def rotate(self):
        """The kubelet writes a token, with the mode that it gives it."""
        volume, source = self.token
        token = f"token-{time.monotonic_ns()}"
        ISSUERS.token = (source["audience"], token)
        write_token(self.volumes[volume["name"]] / source["path"], token, *token_mode(self.spec, volume))

    def logged(self):
        self.log.seek(0)
        return self.log.read()

    def get(self, provider):
        """What the controller gets from the shim: the token, or the error."""
        info = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                "spec": {"interactive": False, "cluster": {"server": "https://prod.example"}}}
        variables = {"KUBERNETES_EXEC_INFO": json.dumps(info)}
        code, output, error = self.client.run(["/opt/credbroker/bin/credbroker-exec", "--provider", provider], variables)
        return json.loads(output)["status"]["token"] if code == 0 else error

    def end(self):
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0, self.logged()


def key(token):
    """The access key that a token of EKS is signed with."""
    text = token.removeprefix("k8s-aws-v1.")
    assert text != token, token
    url = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    return url.split("X-Amz-Credential=")[1].replace("%2F", "/").split("/")[0].split("&")[0]


def identity(token):
    return key(token) if token.startswith("k8s-aws-v1.") else token


def try_page(heading, webhook, provider, expected):
    values = COMMON, PAGE[heading], FAKES
    pod, account, config = render(HELM, WORK, *values)
    bare = copy.deepcopy(pod)
    webhook(pod, account)

    running = Running(pod, config)
    assert identity(found := running.get(provider)) == expected, f"{heading}: {found}"
    if webhook is not clouds.gke:
        # Issuers accept the new token alone, which each run reads.
        running.rotate()
        refreshed = running.broker.run(["/usr/bin/credbroker", "refresh", provider])
        assert refreshed[0] == 0, refreshed
    running.end()
    print(f"{heading}: the controller gets {expected}")
    if webhook is clouds.gke:
        return

    # The annotation keeps the token from the controller and from the copy of the shim.
    assert has_token(pod) == ["credbroker"], has_token(pod)
    del bare["metadata"]["annotations"]
    webhook(everywhere := copy.deepcopy(bare), account)
    assert has_token(everywhere) == ["credbroker-exec", "credbroker", CLIENT], has_token(everywhere)
    # Without it, the shim sends the controller's variables, which are the broker's.
    running = Running(everywhere, config)
    assert identity(found := running.get(provider)) == expected, f"{heading}, everywhere: {found}"
    running.end()

    # The plugin needs the variables, and the page's passEnv is what passes them.
    without = yaml.safe_load(config)
    del without["providers"][0]["passEnv"]
    running = Running(pod, json.dumps(without))
    failed = running.get(provider)
    assert "PLUGIN_EXIT" in failed, failed
    running.end()

    # A pod with fsGroup: 0640 and that group.
    grouped, account, config = render(HELM, WORK, *values, json.dumps({"workload": {"podSecurityContext": {"fsGroup": 65530}}}))
    webhook(grouped, account)
    running = Running(grouped, config)
    assert identity(found := running.get(provider)) == expected, f"{heading} with fsGroup: {found}"
    running.end()

    # A token that only root can read, which is what the page warns of, and afterwards a usable one.
    volume, _ = clouds.projected_token(pod)
    volume["projected"]["defaultMode"] = 0o400
    running = Running(pod, config)
    assert "Permission denied" in (failed := running.get(provider)), failed
    running.end()


def try_openshift():
    """Two uids of a namespace's range, and its fsGroup."""
    [_, text] = (DEPLOY.parent / "docs/kubernetes.md").read_text().split("\n## OpenShift\n")
    values = text.split("```yaml\n")[1].split("```")[0]
    heading, webhook, provider, expected = CASES[0]
    group = json.dumps({"workload": {"podSecurityContext": {"fsGroup": 1000680000}}})
    pod, account, config = render(HELM, WORK, COMMON, PAGE[heading], values, FAKES, group)
    webhook(pod, account)
    running = Running(pod, config)
    assert identity(found := running.get(provider)) == expected, f"OpenShift: {found}"
    running.end()
    print("OpenShift: the same with two uids of a range")


def try_aws():
    """The real `aws`, with the same pods."""
    if importlib.util.find_spec("awscli") is None:
        print("SKIPPED: the real aws: this Python has no awscli")
        return
    for heading, webhook, provider, expected in CASES[:2]:
        pod, account, config = render(HELM, WORK, COMMON, PAGE[heading], FAKES)
        webhook(pod, account)
        running = Running(pod, config, is_real=True)
        assert identity(found := running.get(provider)) == expected, f"aws, {heading}: {found}\n{running.logged()}"
        if webhook is clouds.irsa:
            kept = list((running.volumes["credbroker-tmp"] / ".aws/cli/cache").iterdir())
            assert kept, "aws keeps the keys of the role in its home"
        running.end()
        print(f"{heading}: the same with the real aws")


def try_kustomize():
    """The page's patches do what its values do."""
    pod, account, _ = render(HELM, WORK, COMMON, PAGE[CASES[0][0]])
    objects = [document for document in yaml.safe_load_all(pathlib.Path(KUSTOMIZED).read_text()) if document]
    [patched] = [document["spec"]["template"] for document in objects if document["kind"] == "Deployment"]
    [patched_account] = [document for document in objects if document["kind"] == "ServiceAccount"]
    assert patched_account["metadata"]["annotations"] == account["metadata"]["annotations"], patched_account
    assert patched["metadata"]["annotations"].items() <= pod["metadata"]["annotations"].items(), patched["metadata"]
    assert clouds.annotation(patched, f"{clouds.EKS}/skip-containers"), patched["metadata"]


if __name__ == "__main__":
    enter_namespaces()
    ISSUERS = clouds.Issuers()
    # Everything is mounted here, and gone with the namespace.
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "work", WORK], check=True)
    for case in CASES:
        try_page(*case)
    try_openshift()
    try_aws()
    try_kustomize()
