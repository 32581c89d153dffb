"""One client with one kind of credential, with or without the broker: what happens to its requests."""

import base64
import json
import os
import subprocess
import threading
import time

from clients import V1
from driver import PATIENCE, Driver

# The life of the credentials that expire while a client runs, and of those that are revoked.
SHORT, LONG = 15, 900


class Cell:
    """`way` is "direct" or "broker". The results are in `results`, one dictionary for each phase."""

    def __init__(self, plane, programs, client, kind, way):
        self.plane, self.programs, self.client, self.kind, self.way = plane, programs, client, kind, way
        self.user = f"{client.label}-{kind}-{way}"
        self.lasting = f"{self.user}-lasting"
        self.home = plane.folder / "cells" / self.user
        self.home.mkdir(parents=True)
        self.log = open(self.home / "log", "a")
        self.results, self.broker = {}, None

    def run(self):
        plane, path = self.plane, f"/api/v1/namespaces/{self.user}"
        plane.create("/api/v1/namespaces", {"metadata": {"name": self.user}})
        plane.lifetime(self.user, SHORT)
        plane.lifetime(self.lasting, LONG)
        self.configure()
        try:
            if self.way == "broker":
                self.start_broker()
                self.wrap()
            self.follow_expiry(path)
            if self.kind != "certificate":
                self.follow_revocation()
        finally:
            self.stop_broker()
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
            lists, began = self.lists(), time.time()
            self.results["rotation"] = driver.request(until=lambda: time.time() - began > 2.5 * SHORT, meanwhile=change)
            # All that the client has has expired when it asks again.
            time.sleep(SHORT + 1)
            self.results["expiry"] = driver.recover()
            self.results["runs"] = len(self.plane.runs(self.user))
            if self.way == "broker":
                self.stop_broker()
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
        file = self.home / "broker.yaml"
        file.write_text(json.dumps(config))
        file.chmod(0o600)
        self.home.chmod(0o700)
        self.broker = subprocess.Popen(
            [self.programs["broker"], "serve", "--config", file, "--socket", self.socket],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        check = [self.programs["broker"], "healthcheck", "--socket", self.socket]
        end = time.time() + PATIENCE
        while subprocess.run(check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            if self.broker.poll() is not None or time.time() > end:
                raise RuntimeError(f"{self.user}: the broker does not start, see {self.log.name}")
            time.sleep(0.05)

    def stop_broker(self):
        if self.broker:
            self.broker.terminate()
            self.broker.wait(PATIENCE)
            self.broker = None
