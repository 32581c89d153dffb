"""An API server without ClusterProfiles, for static.sh: prints its port, then each request with its authorization.

usage: hub.py CERTIFICATE KEY
"""

import http.server
import json
import ssl
import sys


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        print("GET", self.path, self.headers["Authorization"], flush=True)
        empty = {"kind": "ClusterProfileList", "metadata": {"resourceVersion": "1"}, "items": []}
        body = json.dumps({"apiVersion": "multicluster.x-k8s.io/v1alpha1"} | empty).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
