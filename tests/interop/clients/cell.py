"""One client with one kind of credential, directly, with the broker, or through the proxy: what happens to its requests."""

import base64
import functools
import json
import os
import socket
import subprocess
import threading
import time

import canary
from clients import V1
from driver import PATIENCE, Driver

# The life of the credentials that expire while a client runs, and of those that are revoked.
SHORT, LONG = 15, 900
# Through the proxy: at its loopback port, and at its Unix socket from a network without any other way out.
PROXIED = ("port", "socket")
# An HTTP proxy that no client can reach.
NOWHERE = {"HTTPS_PROXY": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
EXCEPTION = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


class Cell:
    """`way` is "direct", "broker", or one of PROXIED. The results are in `results`, one dictionary for each phase."""

    def __init__(self, plane, programs, client, kind, way):
        self.plane, self.programs, self.client, self.kind, self.way = plane, programs, client, kind, way
        self.user = f"{client.label}-{kind}-{way}"
        self.lasting = f"{self.user}-lasting"
        self.home = plane.folder / "cells" / self.user
        self.home.mkdir(parents=True)
        self.log = open(self.home / "log", "a")
        self.results, self.broker, self.proxy, self.bridge = {}, None, None, None
        # What runs the client in another network.
        self.inside = []

    def run(self):
        plane, path = self.plane, f"/api/v1/namespaces/{self.user}"
        plane.create("/api/v1/namespaces", {"metadata": {"name": self.user}})
        plane.lifetime(self.user, SHORT)
        plane.lifetime(self.lasting, LONG)
        self.configure()
        try:
            if self.way != "direct":
                self.start_broker()
            if self.way == "broker":
                self.wrap()
            if self.way in PROXIED:
                self.start_proxy()
                (self.lead if self.way == "port" else self.start_bridge)()
            self.follow_expiry(path)
            if self.kind != "certificate":
                self.follow_revocation()
            if (self.way, self.kind) == ("port", "token"):
                self.follow_variable()
        finally:
            self.stop("bridge")
            self.stop("proxy")
            self.stop("broker")
            self.log.close()
        return self

    def follow_expiry(self, path):
        """The credential expires under a client that is busy, then idle; then the broker is started again."""
        created = []

        def change():
            # For the watch of the client to see.
            created.append(f"change-{len(created)}")
            self.plane.create(f"{path}/configmaps", {"metadata": {"name": created[-1]}})

        driver = Driver(self, self.user)
        try:
            change()
            driver.await_seen(created)
            # By the end of these, the audit log has what the client listed before.
            driver.recover()
            lists, began = self.lists(), time.time()
            self.results["rotation"] = driver.request(until=lambda: time.time() - began > 2.5 * SHORT, meanwhile=change)
            # All that the client has has expired when it asks again.
            time.sleep(SHORT + 1)
            self.results["expiry"] = driver.recover()
            self.results["runs"] = len(self.plane.runs(self.user))
            if self.way in PROXIED:
                self.results["secrets"] = self.secrets(driver)
            if self.way != "direct":
                self.stop("broker")
                started = time.time()
                during = threading.Timer(1, self.start_broker)
                during.start()
                self.results["restart"] = driver.request(
                    until=lambda: time.time() - started > SHORT + 5, meanwhile=change
                )
                during.join()
            change()
            driver.await_seen(created)
            if self.client.watches:
                lost = len(set(created) - driver.seen)
                self.results["watch"] = {"relists": self.lists() - lists, "lost": lost}
        finally:
            driver.stop()

    def follow_revocation(self):
        driver = Driver(self, self.lasting)
        try:
            before = driver.recover()
            self.plane.revoke(self.lasting)
            after = driver.recover()
            self.results["revocation"] = after | {"recovered": before["recovered"] and after["recovered"]}
        finally:
            driver.stop()

    def follow_variable(self):
        """The environment names an HTTP proxy, and then an exception for the address of ours."""
        for phase, variables in (("http_proxy", NOWHERE), ("no_proxy", NOWHERE | EXCEPTION)):
            driver = Driver(self, self.user, variables)
            try:
                self.results[phase] = driver.recover()
            finally:
                driver.stop()

    def secrets(self, driver):
        """Where the credential is that only the broker and the proxy should have: in the memory of the client, and in files."""
        found = set()
        # It could be replaced between two looks.
        for _ in range(5):
            forms = canary.forms(self.plane, self.user)
            if not forms:
                # Of a client that never reached the proxy.
                return {"client": [], "proxy": []}
            if of_proxy := canary.in_memory(self.proxy.pid, forms):
                break
        else:
            raise RuntimeError(f"{self.user}: the proxy has no credential, so this check finds none anywhere")
        if driver.process:
            found |= canary.in_memory(driver.process.pid, forms)
        self.log.flush()
        tokens = [token.name.encode() for token in (self.plane.folder / "tokens").glob(f"{self.user}-*")]
        files = [file for file in self.home.rglob("*") if file.is_file() and file.name != "ca.key"]
        found.update(canary.in_files(files, [*tokens, b"PRIVATE KEY-----"]))
        return {"client": sorted(found), "proxy": sorted(of_proxy)}

    def lists(self):
        """How often the client has listed the objects that it watches."""
        return sum(
            (verb == "list" or "sendInitialEvents=true" in uri) and code == 200 and "/configmaps" in uri
            for verb, uri, code in self.plane.audit(self.user)
        )

    # Files.

    def stanza(self, user):
        return {
            "apiVersion": self.client.api_version,
            "command": str(self.programs["plugin"]),
            "args": [str(self.plane.folder), self.kind, user],
            "env": [{"name": "KEY", "value": self.client.key}] if self.client.key else [],
            "interactiveMode": "Never",
        }

    def configure(self):
        cluster = {
            "server": self.plane.url,
            "certificate-authority-data": base64.b64encode(self.plane.authorities).decode(),
        }
        users = (self.user, self.lasting)
        self.file = self.home / "kubeconfig"
        if self.client.profile:
            self.file, config = self.home / "providers.json", {"providers": self.providers(self.stanza)}
            for user in users:
                profile = {
                    "apiVersion": "multicluster.x-k8s.io/v1alpha1",
                    "kind": "ClusterProfile",
                    "metadata": {"name": user, "namespace": self.user},
                    "spec": {"displayName": user, "clusterManager": {"name": "tests"}},
                    "status": {"accessProviders": [{"name": user, "cluster": cluster}]},
                }
                (self.home / user).write_text(json.dumps(profile))
        else:
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "plane", "cluster": cluster}],
                "users": [{"name": user, "user": {"exec": self.stanza(user)}} for user in users],
                "contexts": [{"name": user, "context": {"cluster": "plane", "user": user}} for user in users],
            }
        self.file.write_text(json.dumps(config))
        self.file.chmod(0o600)

    def providers(self, stanza):
        return [{"name": user, "execConfig": stanza(user)} for user in (self.user, self.lasting)]

    def wrap(self):
        """Puts the shim in the place of the plugin."""
        if self.client.profile:

            def shim(user):
                return {
                    "apiVersion": V1,
                    "command": str(self.programs["shim"]),
                    "args": ["--provider", user, "--socket", str(self.socket)],
                    "provideClusterInfo": True,
                }

            self.file.write_text(json.dumps({"providers": self.providers(shim)}))
            return
        wrapped = self.home / "wrapped"
        environment = os.environ | {"PATH": f"{self.programs['shim'].parent}:{os.environ['PATH']}"}
        subprocess.run(
            [
                self.programs["broker"],
                "kubeconfig",
                "wrap",
                "--kubeconfig",
                self.file,
                "-o",
                wrapped,
                "--socket",
                self.socket,
            ],
            check=True,
            env=environment,
            stdout=self.log,
            stderr=self.log,
        )
        self.file = wrapped

    # The broker.

    @property
    def socket(self):
        return self.home / "broker.sock"

    def start_broker(self):
        config = {"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig"}
        if self.client.profile:
            config["providers"] = [p | {"clusterInfo": "FromCaller"} for p in self.providers(self.stanza)]
        else:
            config["kubeconfigs"] = [str(self.home / "kubeconfig")]
        if self.way in PROXIED:
            listen = {"listen": {"socket": str(self.sandbox)}} if self.way == "socket" else {"tls": {"listen": self.port}}
            audit = {"audit": {"file": str(self.home / "proxy-audit")}}
            config["proxy"] = {"directory": str(self.home / "proxy")} | listen | audit
        file = self.home / "broker.yaml"
        file.write_text(json.dumps(config))
        file.chmod(0o600)
        self.home.chmod(0o700)
        self.broker = self.start("serve", "--config", file, "--socket", self.socket)
        check = [self.programs["broker"], "healthcheck", "--socket", self.socket]
        self.until(
            lambda: not subprocess.run(check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode, "broker"
        )

    # The proxy.

    @property
    def sandbox(self):
        return self.home / "sandbox/proxy.sock"

    @functools.cached_property
    def port(self):
        # Nothing says later which port the kernel chose.
        with socket.create_server(("127.0.0.1", 0)) as free:
            return f"127.0.0.1:{free.getsockname()[1]}"

    def start_proxy(self):
        self.proxy = self.start("proxy", "--config", self.home / "broker.yaml", "--socket", self.socket)
        made = self.sandbox if self.way == "socket" else self.home / "proxy/handles.sock"
        self.until(made.exists, "proxy")

    def lead(self):
        """A kubeconfig to the port of the proxy."""
        file, version = self.home / "proxied", self.client.api_version.split("/")[1]
        environment = os.environ | {"PATH": f"{self.programs['shim'].parent}:{os.environ['PATH']}"}
        command = [self.programs["broker"], "kubeconfig", "proxy", "--kubeconfig", self.file, "--output", file]
        command += ["--config", self.home / "broker.yaml", "--socket", self.socket, "--api-version", version]
        subprocess.run(command, check=True, env=environment, stdout=self.log, stderr=self.log)
        self.file = file

    def start_bridge(self):
        """A network with nothing but a bridge to the socket of the proxy, and the kubeconfig that the bridge prints."""
        self.file = self.home / "bridged"
        script = 'ip link set lo up && exec "$0" bridge --listen 127.0.0.1:0 --socket "$1"'
        with open(self.file, "w") as kubeconfig:
            self.bridge = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", script, self.programs["broker"], self.sandbox],
                stdin=subprocess.DEVNULL,
                stdout=kubeconfig,
                stderr=self.log,
            )
        self.until(lambda: self.file.read_text().endswith("\n"), "bridge")
        self.inside = ["nsenter", f"--net=/proc/{self.bridge.pid}/ns/net", "--"]

    # Processes.

    def start(self, *arguments):
        command = [self.programs["broker"], *arguments]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def until(self, is_so, name):
        end = time.time() + PATIENCE
        while not is_so():
            if getattr(self, name).poll() is not None or time.time() > end:
                raise RuntimeError(f"{self.user}: the {name} does not start, see {self.log.name}")
            time.sleep(0.05)

    def stop(self, name):
        if process := getattr(self, name):
            process.terminate()
            process.wait(PATIENCE)
            setattr(self, name, None)
