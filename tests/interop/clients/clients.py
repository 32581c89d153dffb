"""The clients: how each is started, and what the table says about it."""

import dataclasses
import json
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
V1 = "client.authentication.k8s.io/v1"
CLIENT_NODE = r'client-node": "(.*)"'
KINDS = ("token", "certificate", "both")


@dataclasses.dataclass(frozen=True)
class Client:
    """One row of the table."""

    name: str
    # `command(file, context, namespace)`: a program that makes a request for each line that it reads.
    command: object
    # It makes one request and ends.
    once: bool = False
    api_version: str = V1
    kinds: tuple = KINDS
    watches: bool = False
    # `file` and `context` are the files of cluster-inventory-api: providers and a ClusterProfile.
    profile: bool = False
    # The kind of key that openssl makes for its certificates.
    key: str = ""
    advice: str = "–"

    @property
    def proxied(self):
        """The kinds of credential with which it goes through the proxy: those of the proxy's connections."""
        return [kind for kind in self.kinds if kind != "both" and not self.profile]

    @property
    def label(self):
        """In names of users and namespaces."""
        return "-".join(re.findall("[a-z0-9]+", self.name.lower()))


def found(file, pattern):
    """A version, where it is pinned."""
    return re.search(pattern, (HERE / file).read_text())[1]


def javascript_next(programs):
    """Why the next major version of the JavaScript client cannot run here; nothing if it can."""
    folder = programs / "node-next"
    loads = ["node", "--input-type=module", "--eval", "await import('@kubernetes/client-node')"]
    if not subprocess.run(loads, cwd=folder, capture_output=True).returncode:
        return ""
    lock = json.loads((HERE / "node-next/package-lock.json").read_text())["packages"]
    needs = lock["node_modules/undici"]["engines"]["node"].removeprefix(">=")
    has = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return f"JavaScript {found('node-next/package.json', CLIENT_NODE)} needs Node.js {needs} and does not start with {has}."


def clients(programs):
    """All rows, with the programs of a folder that setup.sh has filled."""
    kubectl = found("../controlplane/go.mod", r"k8s.io/kubernetes v(\S+)")
    helm = found("tools/go.mod", r"helm.sh/helm/v3 v(\S+)")
    k9s = found("setup.sh", r"k9s@v(\S+)")
    go = found("go/go.mod", r"k8s.io/client-go v(\S+)")
    access = found("go/go.mod", r"cluster-inventory-api v(\S+)")
    python = found("python/requirements.txt", r"kubernetes==(\S+)")
    node = found("node/package.json", CLIENT_NODE)
    java = found("java/pom.xml", r"client-java</artifactId>\s*<version>(.*)</version>")
    fabric8 = found("fabric8/pom.xml", r"kubernetes-client</artifactId>\s*<version>(.*)</version>")
    kube = found("../../../Cargo.lock", r'name = "kube"\nversion = "(.*)"')

    javascript = {node: "node"}
    if not javascript_next(programs):
        javascript[found("node-next/package.json", CLIENT_NODE)] = "node-next"

    def kubectl_of(program):
        return lambda file, context, namespace: [
            programs / program,
            f"--kubeconfig={file}",
            f"--context={context}",
            "get",
            "namespace",
            namespace,
        ]

    def helm_list(file, context, namespace):
        return [
            programs / "helm",
            f"--kubeconfig={file}",
            f"--kube-context={context}",
            f"--namespace={namespace}",
            "list",
        ]

    def jvm(folder, *given):
        path = f"{programs / folder}/classes:{programs / folder}/dependency/*"
        return ["java", "-Xmx128m", "-XX:+UseSerialGC", "-cp", path, "Client", *given]

    def official(*interval):
        return lambda *given: jvm("java", *given, *interval)

    def fabric8_of(_file, context, namespace):
        return jvm("fabric8", context, namespace)

    return [
        Client(f"kubectl {kubectl}", kubectl_of("kubectl"), once=True),
        Client(
            "kubectl 1.20.2",
            kubectl_of("kubectl-v1beta1"),
            once=True,
            api_version=f"{V1}beta1",
            advice="`apiVersion` v1beta1",
        ),
        Client(f"helm {helm}", helm_list, once=True),
        Client(
            f"k9s {k9s}",
            lambda *given: ["python3", HERE / "k9s/client.py", programs / "k9s", *given],
            watches=True,
        ),
        Client(f"client-go {go}", lambda *given: [programs / "go", "kubeconfig", *given], watches=True),
        Client(
            f"cluster-inventory-api {access}",
            lambda *given: [programs / "go", "access", *given],
            watches=True,
            profile=True,
        ),
        Client(f"kube-rs {kube}", lambda *given: [programs / "kube", *given], watches=True, advice="tokens"),
        *[
            Client(
                f"JavaScript {version}",
                lambda *given, folder=folder: ["node", programs / folder / "client.js", *given],
                watches=True,
            )
            for version, folder in javascript.items()
        ],
        Client(
            f"Python {python}",
            lambda *given: [programs / "python/bin/python", HERE / "python/client.py", *given],
            advice="tokens",
        ),
        Client(f"Java {java}", official("5"), watches=True, advice="`Duration`, tokens"),
        Client(f"Java {java}, no `Duration`", official(), kinds=("token",), watches=True, advice="`Duration`"),
        Client(f"fabric8 {fabric8}, RSA key", fabric8_of, watches=True, key="rsa:2048", advice="tokens"),
        Client(f"fabric8 {fabric8}, EC key", fabric8_of, kinds=("certificate",), watches=True, advice="RSA keys"),
    ]
