"""Controllers through the proxy, while credentials rotate and the broker and the proxy are started again.

usage: run.py FOLDER CONTROLLER BROKER SHIM LOGS MINUTES [PAGE]
  FOLDER        a control plane that start.sh has started
  CONTROLLER    ../node/programs/pods/controller
  LOGS          where the logs go
  PAGE          the page whose table is replaced"""

import base64
import datetime
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import canary
from plane import Plane
from service import Service, until
from table import replace

CONTROLLERS = 30
KINDS = {"token": 3, "certificate": 3}
# Seconds. The broker replaces such a credential after six.
LIFETIME = 8
# Between two restarts, of the broker and of the proxy in turn.
RESTARTS = 20
# Between two changes, and how long nothing changes in each minute.
CHANGES, QUIET = 0.2, 25
COUNTER = "/api/v1/namespaces/events/configmaps/counter"
# A watch that begins with a list. An API server without the support of its etcd refuses it, and then the informer lists.
STREAM = "sendInitialEvents=true"
TROUBLE = re.compile(r" failed: | are lost| list: ")
PLUGIN = pathlib.Path(__file__).resolve().parent.parent / "controlplane/plugin"


class Writer:
    """Numbers the versions of an object, so that the controllers know which they have not seen."""

    def __init__(self, plane):
        self.plane, self.number, self.ends = plane, 1, threading.Event()
        plane.create("/api/v1/namespaces", {"metadata": {"name": "events"}})
        plane.create("/api/v1/namespaces/events/configmaps", {"metadata": {"name": "counter"}, "data": {"number": "1"}})
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.ends.wait(CHANGES):
            # A watch without an event for a long time, and one that is cut among many: both must go on.
            if time.time() % 60 < QUIET:
                continue
            change = {"data": {"number": str(self.number + 1)}}
            status, answer = self.plane.request("PATCH", COUNTER, change, "application/merge-patch+json")
            if status != 200:
                raise RuntimeError(f"{status} {answer}")
            self.number += 1

    def stop(self):
        self.ends.set()
        self.thread.join()


class Controller:
    def __init__(self, program, kubeconfig, context, log):
        self.context, self.log = context, log
        environment = {"VIA": "kubeconfig", "KUBECONFIG": str(kubeconfig), "CONTEXT": context, "HOME": str(log.parent)}
        environment |= {"PATH": os.environ["PATH"], "INTERVAL": "1s"}
        with open(log, "w") as file:
            self.process = subprocess.Popen(program, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def trouble(self):
        """What went wrong. The first list is none, and neither is the first watch that begins with a list."""
        lines = [line for line in self.log.read_text().splitlines() if TROUBLE.search(line)]
        first = {STREAM in line: line for line in reversed(lines) if " list: " in line}
        return [line for line in lines if line not in first.values()]

    def report(self):
        return json.loads(self.log.read_text().splitlines()[-1])


class Run:
    def __init__(self, folder, controller, broker, shim, logs):
        self.plane, self.controller, self.logs = Plane(folder.resolve()), controller, logs.resolve()
        (self.plane.folder / "runs").touch()
        (self.plane.folder / "keys").mkdir(mode=0o700)
        self.broker_program, self.shim = broker.resolve(), shim.resolve()
        self.home = self.plane.folder / "hour"
        self.home.mkdir(mode=0o700)
        (self.home / "run").mkdir(mode=0o700)
        (self.home / "proxy").mkdir(mode=0o755)
        self.socket = self.home / "run/credbroker.sock"
        self.contexts = [f"{kind}-{number}" for kind, count in KINDS.items() for number in range(count)]
        self.restarts = 0

    # Files.

    def write(self, name, content):
        file = self.home / name
        file.write_text(json.dumps(content))
        file.chmod(0o600)
        return file

    def configure(self):
        cluster = {"server": self.plane.url, "certificate-authority-data": base64.b64encode(self.plane.authorities).decode()}

        def stanza(name):
            arguments = [str(self.plane.folder), name.split("-")[0], name, "admins", str(LIFETIME)]
            version = "client.authentication.k8s.io/v1"
            return {"exec": {"apiVersion": version, "command": str(PLUGIN), "args": arguments, "interactiveMode": "Never"}}

        self.original = self.write(
            "kubeconfig",
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "plane", "cluster": cluster}],
                "users": [{"name": f"user-of-{name}", "user": stanza(name)} for name in self.contexts],
                "contexts": [{"name": n, "context": {"cluster": "plane", "user": f"user-of-{n}"}} for n in self.contexts],
            },
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = f"127.0.0.1:{free.getsockname()[1]}"
        self.config = self.write(
            "config.yaml",
            {
                "apiVersion": "credbroker.io/v1alpha1",
                "kind": "BrokerConfig",
                "kubeconfigs": [str(self.original)],
                "audit": {"file": str(self.logs / "audit.jsonl")},
                "proxy": {
                    "directory": str(self.home / "proxy"),
                    "tls": {"listen": self.port},
                    "audit": {"file": str(self.logs / "proxy-audit.jsonl")},
                },
            },
        )

    def command(self, *arguments):
        environment = os.environ | {"PATH": f"{self.shim.parent}:{os.environ['PATH']}", "HOME": str(self.home)}
        environment |= {"KUBECONFIG": str(self.original), "CREDBROKER_SOCKET": str(self.socket)}
        done = subprocess.run([self.broker_program, *arguments], env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{arguments}: {done.stderr}")
        return done.stdout

    # Processes.

    def start(self):
        program, config = self.broker_program, self.config
        self.broker = Service(self.home, "credbroker", [str(self.socket)], [program, "serve", "--config", config])
        listen = [self.port, str(self.home / "proxy/handles.sock")]
        command = [program, "proxy", "--config", config, "--socket", self.socket]
        self.proxy = Service(self.home, "credbroker-proxy", listen, command)
        # The first connection starts the proxy.
        socket.create_connection(self.port.split(":")).close()
        until("the proxy has its authority", (self.home / "proxy/ca.crt").exists)
        proxied = self.home / "proxied"
        self.command("kubeconfig", "proxy", "--config", config, "--output", proxied)
        self.controllers = [
            Controller(self.controller, proxied, self.contexts[n % len(self.contexts)], self.logs / f"controller-{n}.log")
            for n in range(CONTROLLERS)
        ]
        self.proxied = proxied

    def restart(self):
        (self.broker, self.proxy)[self.restarts % 2].restart()
        self.restarts += 1

    def go(self, minutes):
        began = time.time()
        end, minute = began + 60 * minutes, began + 60
        self.writer = Writer(self.plane)
        self.configure()
        self.start()
        # Each has seen the first version.
        for controller in self.controllers:
            until("the controllers list", lambda c=controller: " list: " in c.log.read_text())
        self.writer.thread.start()
        restart = time.time() + RESTARTS
        while time.time() < end:
            time.sleep(max(0, min(restart, minute, end) - time.time()))
            if time.time() >= restart:
                self.restart()
                restart += RESTARTS
            if time.time() >= minute:
                minute += 60
                print(self.summary(began), flush=True)
        self.writer.stop()
        return began

    def summary(self, began):
        runs = sum(len(self.plane.runs(name)) for name in self.contexts)
        dead = sum(controller.process.poll() is not None for controller in self.controllers)
        trouble = [line for controller in self.controllers for line in controller.trouble()]
        return (
            f"minute {(time.time() - began) / 60:.0f}: {runs / len(self.contexts):.0f} rotations of each of {len(self.contexts)} "
            f"targets, {self.restarts} restarts, {self.writer.number} events, "
            f"{len(trouble)} troubles, {dead} controllers dead"
            + "".join(f"\n    {line}" for line in trouble[-5:])
        )

    # Afterwards.

    def secrets(self):
        """Problems: secrets where none may be. And that the proxy has them, or these checks would find nothing anywhere."""
        for context in ("token-0", "certificate-0"):
            forms, of_proxy, tries = {}, set(), 0
            # It could be replaced between the two looks.
            while not of_proxy and tries < 5:
                forms = canary.forms(self.plane, context)
                of_proxy = canary.in_memory(self.proxy.pid, forms)
                tries += 1
            print(f"{context}: in the memory of the proxy: {', '.join(sorted(of_proxy)) or 'nothing'}")
            if not of_proxy:
                yield f"{context}: the check does not find the credential in the proxy"
            for controller in (c for c in self.controllers if c.context == context):
                if found := canary.in_memory(controller.process.pid, forms):
                    yield f"{context}: {found} in the memory of a controller"
        tokens = [token.name.encode() for token in (self.plane.folder / "tokens").iterdir()]
        files = [file for file in [*self.logs.rglob("*"), *self.home.rglob("*")] if file.is_file()]
        for file in canary.in_files(files, [*tokens, b"PRIVATE KEY-----"]):
            # The keys of the proxy itself.
            if file != str(self.home / "proxy/ca.key"):
                yield f"{file} has a token or a key"
        print(f"{len(tokens)} tokens, and keys, looked for in {len(files)} files")

    def stop(self):
        for controller in self.controllers:
            controller.process.send_signal(signal.SIGTERM)
        for controller in self.controllers:
            controller.process.wait(60)
        self.proxy.stop()
        self.broker.stop()
        for service in (self.proxy, self.broker):
            (self.logs / f"{service.home.name}.log").write_bytes(service.log.read_bytes())

    def lists(self):
        """What the informers listed at the API server."""
        streams = lists = 0
        for file in self.plane.folder.glob("audit*.log"):
            with open(file) as log:
                for line in log:
                    if "/namespaces/events/configmaps?" not in line:
                        continue
                    event = json.loads(line)
                    if event["user"]["username"] in self.contexts and event["responseStatus"]["code"] == 200:
                        lists += event["verb"] == "list"
                        streams += STREAM in event["requestURI"] and event["stage"] == "ResponseStarted"
        return max(streams, lists)

    def count(self):
        """What happened, in the order of the table."""
        reports = [controller.report() for controller in self.controllers]
        runs = sum(len(self.plane.runs(name)) for name in self.contexts)
        self.counts = {"Plugin runs": runs, "Restarts": self.restarts}
        for name in ("requests", "failed", "unauthorized", "events", "lost"):
            self.counts[name.capitalize()] = sum(report[name] for report in reports)
        # Each informer lists once.
        self.counts["Relists"] = self.lists() - CONTROLLERS

    def table(self, minutes):
        measured = f"Measured on {datetime.date.today()}, for {minutes:g} minutes."
        rows = [self.counts.keys(), ["---"] * len(self.counts), map(str, self.counts.values())]
        return "\n".join([measured, "", *(f"| {' | '.join(row)} |" for row in rows)])

    def problems(self, minutes):
        for what in ("Failed", "Lost", "Relists"):
            if self.counts[what]:
                yield f"{what}: {self.counts[what]}"
        written = self.writer.number * CONTROLLERS
        if self.counts["Events"] != written:
            yield f"{self.counts['Events']} events of {written}"
        if self.restarts < 2 or self.counts["Plugin runs"] < minutes * 60 / LIFETIME * len(self.contexts):
            yield "too few restarts or rotations"
        for service in (self.proxy, self.broker):
            for code in service.failures():
                yield f"{service.home.name} ended with {code}"


def main():
    *paths, minutes = sys.argv[1:7]
    run = Run(*map(pathlib.Path, paths))
    minutes = float(minutes)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run.go(minutes)
        problems = list(run.secrets())
    finally:
        run.stop()
    run.count()
    print(table := run.table(minutes))
    if len(sys.argv) > 7:
        replace(pathlib.Path(sys.argv[7]), "hour", table)
    problems += run.problems(minutes)
    for controller in run.controllers:
        for line in controller.trouble():
            print(f"{controller.log.name}: {controller.context}: {line}")
    if problems:
        sys.exit("\n".join(problems))


main()
