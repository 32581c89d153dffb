"""Issues the tokens of the pods' exec plugins: GET /NAME/HOST answers with an ExecCredential.

usage: issuer.py FOLDER ADDRESS PORT

FOLDER is that of the control plane. FOLDER/lifetime has the seconds that a token lasts (60), and FOLDER/issued.log gets a line
for each: time, plugin, pod."""

import http.server
import json
import pathlib
import secrets
import sys
import time

FOLDER = pathlib.Path(sys.argv[1])
LIFETIME = FOLDER / "lifetime"
ISSUED = open(FOLDER / "issued.log", "a", buffering=1)


def issue(plugin, pod):
    """The status of an ExecCredential."""
    expires = int(time.time()) + int(LIFETIME.read_text() if LIFETIME.exists() else 60)
    token = f"{plugin}-{secrets.token_hex(16)}"
    new = FOLDER / f".{token}"
    new.write_text(json.dumps({"user": plugin, "groups": ["admins"], "expires": expires}))
    # Under its name only when it is complete.
    new.rename(FOLDER / "tokens" / token)
    ISSUED.write(f"{time.time():.3f} {plugin} {pod}\n")
    return {"token": token, "expirationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(expires))}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        _, plugin, pod = self.path.split("/")
        body = json.dumps(issue(plugin, pod)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer((sys.argv[2], int(sys.argv[3])), Handler).serve_forever()
