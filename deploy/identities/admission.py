"""The webhooks of clouds.py behind a real API server: it calls them for each pod of the page, and takes what they answer.

usage: admission.py HELM KUBECONFIG DIRECTORY      with the namespace `controllers`, in which Pod Security is enforced
"""

import base64
import copy
import json
import pathlib
import ssl
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import clouds
from page import CASES, COMMON, PAGE, has_token, render

HELM, KUBECONFIG, WORK = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])


def kubectl(*arguments, document=None):
    result = subprocess.run(["kubectl", "--kubeconfig", KUBECONFIG, *arguments], capture_output=True, text=True, check=False,
                            input=json.dumps(document))
    assert result.returncode == 0, result.stderr
    return result.stdout


class Admission(BaseHTTPRequestHandler):
    """Answers with the patch that `webhook` makes for `account`."""

    webhook = account = None

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        pod = copy.deepcopy(request["object"])
        type(self).webhook(pod, self.account)
        patch = [{"op": "add", "path": "/spec", "value": pod["spec"]}]
        response = {"uid": request["uid"], "allowed": True, "patchType": "JSONPatch",
                    "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        pass


def serve():
    """Starts the server, and returns what the API server needs to call it."""
    certificate, key = WORK / "webhook.pem", WORK / "webhook.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
                   check=True, capture_output=True)
    server = HTTPServer(("127.0.0.1", 0), Admission)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    authority = base64.b64encode(certificate.read_bytes()).decode()
    return {"url": f"https://127.0.0.1:{server.server_port}/", "caBundle": authority}


kubectl("create", "--filename", "-", document={
    "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "identities"},
    "webhooks": [{
        "name": "identities.example.com", "clientConfig": serve(), "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }],
})
for number, (heading, webhook, _, _) in enumerate(CASES):
    pod, account, _ = render(HELM, WORK, COMMON, PAGE[heading])
    Admission.webhook, Admission.account = staticmethod(webhook), account
    kubectl("apply", "--server-side", "--force-conflicts", "--filename", "-", document=account)
    pod |= {"apiVersion": "v1", "kind": "Pod"}
    pod["metadata"] |= {"name": f"identity-{number}", "namespace": "controllers"}
    # A webhook is called soon after its configuration is there, which the first pod waits for.
    token = None
    while not token:
        created = json.loads(kubectl("create", "--dry-run=server", "--filename", "-", "--output", "json", document=pod))
        token = clouds.projected_token(created)
        if webhook is clouds.gke:
            break
    if token:
        assert has_token(created) == ["credbroker"], has_token(created)
        # What pod.py assumes of a webhook that sets no mode.
        assert token[0]["projected"]["defaultMode"] == 0o644, token
    [broker] = [item for item in created["spec"]["initContainers"] if item["name"] == "credbroker"]
    assert broker["restartPolicy"] == "Always", broker
print(f"a real API server gives {len(CASES)} pods their identities through webhooks")
