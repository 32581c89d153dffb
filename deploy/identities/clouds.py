"""Fakes of three clouds: webhooks that change pods, issuers, and plugins that ask them.

The webhooks do what these do: aws/amazon-eks-pod-identity-webhook (pkg/handler/handler.go) and Azure/azure-workload-identity
(pkg/webhook/webhook.go). Both change init containers and containers alike, except those that an annotation names.
"""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

# The services on a node that give pods their identity.
AGENT, METADATA = "169.254.170.23", "169.254.169.254"
# STS and Entra ID, which are reached by name, are here.
STS, ENTRA = "http://127.0.0.1:8081", "http://127.0.0.1:8082/"
ROLE, CLIENT_ID, TENANT = "arn:aws:iam::111122223333:role/fleet-reader", "00000000-0000-0000-0000-00000000c0de", "tenant"
EKS, AZURE = "eks.amazonaws.com", "azure.workload.identity"


def projected_token(pod):
    """The projected volume of a service account token that a webhook has added: its name, audience and path."""
    for volume in pod["spec"]["volumes"]:
        for source in volume.get("projected", {}).get("sources", []):
            if source.get("serviceAccountToken", {}).get("audience"):
                return volume, source["serviceAccountToken"]
    return None


def change(pod, skipped, variables, mount, volume):
    """What both webhooks do. A variable or mount that is there stays as it is."""
    for container in pod["spec"]["initContainers"] + pod["spec"]["containers"]:
        if container["name"] in skipped:
            continue
        known = {item["name"] for item in container.setdefault("env", [])}
        container["env"] += [{"name": name, "value": text} for name, text in variables.items() if name not in known]
        container.setdefault("volumeMounts", []).append({"name": volume["name"], "mountPath": mount, "readOnly": True})
    pod["spec"]["volumes"].insert(0, volume)


def volume(name, audience, path):
    # Without a defaultMode: the API server sets 0644.
    source = {"serviceAccountToken": {"audience": audience, "expirationSeconds": 86400, "path": path}}
    return {"name": name, "projected": {"sources": [source]}}


def annotation(thing, name):
    return thing["metadata"].get("annotations", {}).get(name, "")


def irsa(pod, account):
    mount = "/var/run/secrets/eks.amazonaws.com/serviceaccount"
    if role := annotation(account, f"{EKS}/role-arn"):
        variables = {
            "AWS_STS_REGIONAL_ENDPOINTS": "regional", "AWS_DEFAULT_REGION": "eu-west-1", "AWS_REGION": "eu-west-1",
            "AWS_ROLE_ARN": role, "AWS_WEB_IDENTITY_TOKEN_FILE": f"{mount}/token",
        }
        skipped = annotation(pod, f"{EKS}/skip-containers").split(",")
        change(pod, skipped, variables, mount, volume("aws-iam-token", "sts.amazonaws.com", "token"))


def pod_identity(pod, _account):
    mount = "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount"
    variables = {
        "AWS_STS_REGIONAL_ENDPOINTS": "regional", "AWS_DEFAULT_REGION": "eu-west-1", "AWS_REGION": "eu-west-1",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{AGENT}/v1/credentials",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": f"{mount}/eks-pod-identity-token",
    }
    skipped = annotation(pod, f"{EKS}/skip-containers").split(",")
    change(pod, skipped, variables, mount, volume("eks-pod-identity-token", "pods.eks.amazonaws.com", "eks-pod-identity-token"))


def azure(pod, account):
    mount, path = "/var/run/secrets/azure/wi", "token/azure-identity-token"
    if pod["metadata"]["labels"].get(f"{AZURE}/use") == "true":
        variables = {
            "AZURE_CLIENT_ID": annotation(account, f"{AZURE}/client-id"), "AZURE_TENANT_ID": TENANT,
            "AZURE_FEDERATED_TOKEN_FILE": f"{mount}/{path}", "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com/",
        }
        skipped = [name.strip() for name in annotation(pod, f"{AZURE}/skip-containers").split(";")]
        name = "azure-workload-identity-reserved-0123456789"
        change(pod, skipped, variables, mount, volume(name, "api://AzureADTokenExchange", path))


def gke(_pod, _account):
    """GKE changes no pod."""


class Issuers:
    """All issuers. Each accepts the current token of a pod, for its own audience."""

    def __init__(self):
        self.token = None
        servers = [("127.0.0.1", 8081, self.sts), ("127.0.0.1", 8082, self.entra), (AGENT, 80, self.agent), (METADATA, 80, self.metadata)]
        for host, port, answer in servers:
            server = ThreadingHTTPServer((host, port), handler(answer))
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def accepts(self, token, audience):
        return token is not None and (audience, token) == self.token

    def sts(self, _method, _path, _headers, form):
        if form.get("Action") != "AssumeRoleWithWebIdentity" or form.get("RoleArn") != ROLE \
                or not self.accepts(form.get("WebIdentityToken"), "sts.amazonaws.com"):
            return 403, "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>Not authorized to perform " \
                "sts:AssumeRoleWithWebIdentity</Message></Error></ErrorResponse>"
        return 200, '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">' \
            "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIAOFIRSA</AccessKeyId>" \
            "<SecretAccessKey>secret</SecretAccessKey><SessionToken>session</SessionToken>" \
            f"<Expiration>{in_an_hour()}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>" \
            "<ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></AssumeRoleWithWebIdentityResponse>"

    def agent(self, method, path, headers, _form):
        if (method, path) != ("GET", "/v1/credentials") or not self.accepts(headers.get("Authorization"), "pods.eks.amazonaws.com"):
            return 403, "no association"
        keys = {"AccessKeyId": "ASIAOFPODIDENTITY", "SecretAccessKey": "secret", "Token": "session", "AccountId": "111122223333"}
        return 200, json.dumps(keys | {"Expiration": in_an_hour()})

    def metadata(self, method, path, headers, _form):
        if headers.get("Metadata-Flavor") != "Google":
            return 403, "Missing Metadata-Flavor:Google header."
        if (method, path) != ("GET", "/computeMetadata/v1/instance/service-accounts/default/token"):
            return 404, "not found"
        return 200, json.dumps({"access_token": "token-of-gke", "expires_in": 3599, "token_type": "Bearer"})

    def entra(self, method, path, _headers, form):
        kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        if (method, path) != ("POST", f"/{TENANT}/oauth2/v2.0/token") or form.get("client_id") != CLIENT_ID \
                or form.get("grant_type") != "client_credentials" or form.get("client_assertion_type") != kind \
                or not self.accepts(form.get("client_assertion"), "api://AzureADTokenExchange"):
            return 401, json.dumps({"error": "invalid_client", "error_description": "AADSTS700213: no matching federated identity record"})
        return 200, json.dumps({"access_token": "token-of-azure", "expires_in": 3599, "token_type": "Bearer"})


def in_an_hour():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))


def handler(answer):
    class Handler(BaseHTTPRequestHandler):
        def respond(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            status, text = answer(self.command, urlsplit(self.path).path, self.headers, form)
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if text.startswith("{") else "text/xml")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = respond

        def log_message(self, *_arguments):
            pass

    return Handler


PRINT = '''jq --null-input --arg version "$1" --arg token "$2" '{apiVersion: ("client.authentication.k8s.io/" + $version),
    kind: "ExecCredential", status: {token: $token, expirationTimestamp: (now + 600 | todate)}}'
'''
# What `aws eks get-token` does: keys of the role, and a URL that is signed with them.
AWS = '''#!/bin/sh
set -eu
[ "$*" = "eks get-token --cluster-name prod --region eu-west-1" ]
if [ -n "${AWS_CONTAINER_CREDENTIALS_FULL_URI-}" ]; then
    token=$(cat "$AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    key=$(curl --silent --show-error --fail --header "Authorization: $token" "$AWS_CONTAINER_CREDENTIALS_FULL_URI" | jq -er .AccessKeyId)
elif [ -n "${AWS_WEB_IDENTITY_TOKEN_FILE-}" ]; then
    token=$(cat "$AWS_WEB_IDENTITY_TOKEN_FILE")
    key=$(curl --silent --show-error --fail --data Action=AssumeRoleWithWebIdentity --data-urlencode "RoleArn=$AWS_ROLE_ARN" \\
        --data-urlencode "WebIdentityToken=$token" "$AWS_ENDPOINT_URL_STS" | sed 's/.*<AccessKeyId>//; s/<.*//')
else
    echo "Unable to locate credentials" >&2
    exit 255
fi
[ -n "$key" ]
url="https://sts.eu-west-1.amazonaws.com/?Action=GetCallerIdentity&X-Amz-Credential=$key"
set -- v1beta1 "k8s-aws-v1.$(printf %s "$url" | base64 --wrap 0 | tr +/ -_ | tr -d =)"
''' + PRINT
GKE = '''#!/bin/sh
set -eu
[ "$*" = --use_application_default_credentials ]
answer=$(curl --silent --show-error --fail --header "Metadata-Flavor: Google" \\
    http://169.254.169.254/computeMetadata/v1/instance/service-accounts/default/token)
set -- v1 "$(printf %s "$answer" | jq -er .access_token)"
''' + PRINT
KUBELOGIN = '''#!/bin/sh
set -eu
[ "$1 $2 $3" = "get-token --login workloadidentity" ]
assertion=$(cat "$AZURE_FEDERATED_TOKEN_FILE")
answer=$(curl --silent --show-error --fail --data grant_type=client_credentials --data-urlencode "client_id=$AZURE_CLIENT_ID" \\
    --data-urlencode client_assertion_type=urn:ietf:params:oauth:client-assertion-type:jwt-bearer \\
    --data-urlencode "client_assertion=$assertion" --data-urlencode "scope=$5/.default" \\
    "$AZURE_AUTHORITY_HOST$AZURE_TENANT_ID/oauth2/v2.0/token")
set -- v1beta1 "$(printf %s "$answer" | jq -er .access_token)"
''' + PRINT
PLUGINS = {"aws": AWS, "gke-gcloud-auth-plugin": GKE, "kubelogin": KUBELOGIN}
