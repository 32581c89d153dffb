"""How long a person waits for kubectl, and what 50 kubectl in parallel cost.

usage: warm.py FOLDER KUBECTL BROKER SHIM DOCS ROUNDS [KCC]"""

import base64
import contextlib
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import plot
from plane import Plane
from table import replace

STORM = 50
PAUSE = 0.5
PLUGIN = pathlib.Path(__file__).resolve().parent.parent / "controlplane/plugin"


class Way:
    """A way to a credential: its label, and the user of a kubeconfig. Its plugin runs under two names: the user that is
    measured and the one of the storm, for which nothing is cached."""

    def __init__(self, plane, name, label, user):
        self.name, self.label = name, label
        cluster = {"server": plane.url, "certificate-authority-data": base64.b64encode(plane.authorities).decode()}
        names = [f"{name}-warm", f"{name}-storm"]
        self.file = write(
            plane.folder / f"{name}.kubeconfig",
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "plane", "cluster": cluster}],
                "users": [{"name": n, "user": user(n)} for n in names],
                "contexts": [{"name": n, "context": {"cluster": "plane", "user": n}} for n in names],
            },
        )

    def kubectl(self, program, what):
        return [program, f"--kubeconfig={self.file}", f"--context={self.name}-{what}", "get", "--raw", "/version"]


def write(file, content):
    file.write_text(json.dumps(content))
    file.chmod(0o600)
    return file


def stanza(plane, user, *before):
    command, *arguments = [*before, str(PLUGIN), str(plane.folder), "token", user, "admins", "3600"]
    environment = [
        {"name": "PAUSE", "value": str(PAUSE)},
        {"name": "KUBE_CREDENTIAL_CACHE_FILE", "value": str(plane.folder / "kcc.json")},
    ]
    version = "client.authentication.k8s.io/v1"
    return {
        "exec": {
            "apiVersion": version,
            "command": command,
            "args": arguments,
            "env": environment,
            "interactiveMode": "Never",
        }
    }


def static(plane, user):
    (plane.folder / "tokens" / user).write_text(json.dumps({"user": user, "groups": ["admins"]}))
    return {"token": user}


@contextlib.contextmanager
def shimmed(plane, broker, shim, original):
    """A kubeconfig that `credbroker kubeconfig wrap` made, while the broker runs."""
    socket, wrapped = plane.folder / "broker.sock", plane.folder / "wrapped.kubeconfig"
    config = {"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig", "kubeconfigs": [str(original)]}
    serve = [broker, "serve", "--config", write(plane.folder / "broker.yaml", config), "--socket", socket]
    with open(plane.folder / "broker.log", "w") as log:
        process = subprocess.Popen(serve, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        while subprocess.run([broker, "healthcheck", "--socket", socket], capture_output=True).returncode:
            if process.poll() is not None:
                sys.exit((plane.folder / "broker.log").read_text())
            time.sleep(0.05)
        environment = os.environ | {"PATH": f"{shim.parent}:{os.environ['PATH']}"}
        wrap = [broker, "kubeconfig", "wrap", "--kubeconfig", original, "-o", wrapped, "--socket", socket]
        subprocess.run(wrap, check=True, env=environment, capture_output=True)
        yield wrapped
    finally:
        process.terminate()
        process.wait()


def timed(command):
    began = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000


def storm(plane, kubectl, way):
    """50 in parallel: how long until the last has its answer, how many plugin runs, and how many failed."""
    began = time.perf_counter()
    started = [
        subprocess.Popen(way.kubectl(kubectl, "storm"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(STORM)
    ]
    failed = sum(process.wait() != 0 for process in started)
    return time.perf_counter() - began, len(plane.runs(f"{way.name}-storm")), failed


def main():
    folder, kubectl, broker, shim, docs = map(pathlib.Path, sys.argv[1:6])
    rounds, kcc = int(sys.argv[6]), sys.argv[7:]
    plane = Plane(folder.resolve())
    (plane.folder / "runs").touch()
    ways = [
        Way(plane, "static", "static token", lambda user: static(plane, user)),
        Way(plane, "broker", "credbroker", lambda user: stanza(plane, user)),
        *([Way(plane, "kcc", "kube-credential-cache", lambda user: stanza(plane, user, *kcc))] if kcc else []),
        Way(plane, "plugin", f"plugin of {PAUSE * 1000:.0f} ms", lambda user: stanza(plane, user)),
    ]
    with shimmed(plane, broker.resolve(), shim.resolve(), ways[1].file) as wrapped:
        ways[1].file = wrapped
        times = {way.label: [] for way in ways}
        for way in ways:
            timed(way.kubectl(kubectl, "warm"))
        for _ in range(rounds):
            # In turns, so that a busy moment is one for all.
            for way in ways:
                times[way.label].append(timed(way.kubectl(kubectl, "warm")))
        storms = {way.label: storm(plane, kubectl, way) for way in ways}

    bars, lines = [], []
    for label, values in times.items():
        median, p95 = statistics.median(values), statistics.quantiles(values, n=20)[-1]
        wall, runs, failed = storms[label]
        bars.append((label, median, p95))
        lines.append(f"| {label} | {median:.0f} ms | {p95:.0f} ms | {runs} | {wall:.1f} s | {failed} |")
    head = [
        "Credential from",
        "Median",
        "95th percentile",
        f"Plugin runs of {STORM} in parallel",
        "Until the last has its answer",
        "Failed",
    ]
    text = "\n".join(
        [
            f"Measured on {datetime.date.today()}, {rounds} rounds.",
            "",
            f"| {' | '.join(head)} |",
            "|" + "---|" * len(head),
            *lines,
        ]
    )
    print(text)
    replace(docs / "clients.md", "warm", text)
    plot.write(docs / "warm.svg", f"kubectl get --raw /version, median of {rounds} and 95th percentile", bars)


main()
