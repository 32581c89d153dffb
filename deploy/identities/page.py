"""docs/identities.md: its YAML, and the pods that the chart makes of it."""

import pathlib
import subprocess

import yaml

import clouds

DEPLOY = pathlib.Path(__file__).resolve().parent.parent
CASES = [  # heading of the page, webhook, provider, what the token shows
    ("EKS: IAM roles for service accounts", clouds.irsa, "eks-prod", "ASIAOFIRSA"),
    ("EKS Pod Identity", clouds.pod_identity, "eks-prod", "ASIAOFPODIDENTITY"),
    ("GKE workload identity", clouds.gke, "gke", "token-of-gke"),
    ("Azure workload identity", clouds.azure, "aks-prod", "token-of-azure"),
]


def blocks():
    """The YAML of the page, by the heading that it is below."""
    found, heading, lines = {}, "", None
    for line in (DEPLOY.parent / "docs/identities.md").read_text().splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line == "```yaml":
            lines = []
        elif line == "```" and lines is not None:
            assert heading not in found, f"two blocks below {heading}"
            found[heading], lines = "\n".join(lines), None
        elif lines is not None:
            lines.append(line)
    return found


def render(helm, work, *values):
    """The pod of the chart, its ServiceAccount and the broker's configuration."""
    arguments = []
    for number, text in enumerate(values):
        (work / f"values-{number}.yaml").write_text(text)
        arguments += ["--values", work / f"values-{number}.yaml"]
    chart = [DEPLOY / "helm/credbroker", "--namespace", "controllers", "--kube-version", "1.35.0"]
    output = subprocess.run([helm, "template", "test", *chart, *arguments], capture_output=True, text=True, check=True).stdout
    objects = {document["kind"]: document for document in yaml.safe_load_all(output) if document}
    return objects["Deployment"]["spec"]["template"], objects["ServiceAccount"], objects["ConfigMap"]["data"]["config.yaml"]


def has_token(pod):
    """The containers that mount the token."""
    volume, _ = clouds.projected_token(pod)
    containers = pod["spec"]["initContainers"] + pod["spec"]["containers"]
    return [item["name"] for item in containers if any(mount["name"] == volume["name"] for mount in item["volumeMounts"])]


PAGE = blocks()
COMMON = PAGE["What all of them have"]
