"""The authentication webhook of the control plane: answers a TokenReview from the file that is named like the token.

usage: webhook.py FOLDER

Reads FOLDER/tokens, writes its port to FOLDER/webhook.port and a line for each review to FOLDER/reviews.log."""

import hashlib
import http.server
import json
import pathlib
import sys
import time

FOLDER = pathlib.Path(sys.argv[1])
PORT = FOLDER / "webhook.port"
REVIEWS = open(FOLDER / "reviews.log", "a", buffering=1)


def review(token):
    """The status of a TokenReview, and the reason for the log."""
    try:
        # A token is a file name here, and not a path.
        known = json.loads((FOLDER / "tokens" / token.replace("/", "_")).read_text())
    except (OSError, ValueError):
        return {"authenticated": False}, "not known"
    if time.time() >= known.get("expires", float("inf")):
        return {"authenticated": False}, "expired " + known["user"]
    user = {"username": known["user"], "groups": known.get("groups", [])}
    return {"authenticated": True, "user": user}, known["user"]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        token = request["spec"]["token"]
        status, reason = review(token)
        REVIEWS.write(f"{time.time():.3f} {hashlib.sha256(token.encode()).hexdigest()[:12]} {reason}\n")
        answer = {"apiVersion": request["apiVersion"], "kind": "TokenReview", "status": status}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(PORT.read_text()) if PORT.exists() else 0), Handler)
new = PORT.with_suffix(".new")
new.write_text(str(server.server_port))
new.rename(PORT)
server.serve_forever()
