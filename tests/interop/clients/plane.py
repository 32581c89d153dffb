"""The control plane as its administrator, what its plugin and its audit log say, and its tokens."""

import http.client
import json
import pathlib
import ssl
import threading
import time
import urllib.parse


class Plane:
    """A folder of controlplane/start.sh."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.url = (self.folder / "server").read_text().strip()
        self.authorities = (self.folder / "ca.pem").read_bytes()
        (self.folder / "lifetimes").mkdir(exist_ok=True)
        self._tls = ssl.create_default_context(cafile=self.folder / "ca.pem")
        self._admin = ssl.create_default_context(cafile=self.folder / "ca.pem")
        self._admin.load_cert_chain(self.folder / "admin.pem", self.folder / "admin.key")
        self._runs, self._runs_read = [], 0
        self._lock = threading.Lock()

    def request(self, method, path, body=None, content_type="application/json", token=None):
        """The status and the body of an answer, as the administrator or with a token."""
        address = urllib.parse.urlsplit(self.url)
        connection = http.client.HTTPSConnection(
            address.hostname, address.port, timeout=30, context=self._tls if token else self._admin
        )
        headers = {"Content-Type": content_type}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def create(self, path, body):
        status, answer = self.request("POST", path, body)
        if status not in (201, 409):
            raise RuntimeError(f"POST {path}: {status} {answer[:300]}")

    def lifetime(self, user, seconds):
        """Of the credentials that this user gets from now on."""
        (self.folder / "lifetimes" / user).write_text(str(seconds))

    def runs(self, user):
        """When the plugin was run for a user, as seconds since 1970."""
        with self._lock:
            with open(self.folder / "runs") as log:
                log.seek(self._runs_read)
                for line in iter(log.readline, ""):
                    if not line.endswith("\n"):
                        break
                    at, _, who = line.split()
                    self._runs.append((float(at), who))
                    self._runs_read += len(line)
            return [at for at, who in self._runs if who == user]

    def revoke(self, user):
        """Revokes all tokens of a user, and waits until the API server has forgotten what it thought of them."""
        tokens = list((self.folder / "tokens").glob(f"{user}-*"))
        for token in tokens:
            token.unlink()
        for token in tokens:
            while self.request("GET", "/api", token=token.name)[0] != 401:
                time.sleep(0.2)
        return len(tokens)

    def audit(self, namespace):
        """The requests below a namespace: verb, path and code."""
        with open(self.folder / "audit.log") as log:
            for line in log:
                if f"/namespaces/{namespace}" not in line:
                    continue
                event = json.loads(line)
                # A watch has two events: when it begins, and when it ends.
                if event["verb"] == "watch" and event["stage"] != "ResponseStarted":
                    continue
                path = event["requestURI"]
                if path.split("?")[0].split("/namespaces/")[1].split("/")[0] == namespace:
                    yield event["verb"], path, event.get("responseStatus", {}).get("code", 0)
