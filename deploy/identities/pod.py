"""A pod as a kubelet runs it: volumes with their modes, and containers with their roots, mounts, variables and users."""

import os
import pathlib
import shutil
import subprocess
import tempfile

TOOLS = ("curl", "jq", "sed", "base64", "cat", "tr")


def mount(*arguments):
    subprocess.run(["mount", *map(str, arguments)], check=True)


def show(source, place):
    """What the machine has, at a place of a container, where nothing can change it."""
    mount("--bind", source, place)
    mount("-o", "remount,bind,ro", place)


def token_mode(spec, volume):
    """The mode of a projected token and its owner, as pkg/volume/projected of Kubernetes 1.35 decides them."""
    uids = {container["securityContext"].get("runAsUser") for container in spec["initContainers"] + spec["containers"]}
    group = spec.get("securityContext", {}).get("fsGroup")
    if group is not None:
        return 0o640, 0, group
    if len(uids) == 1 and None not in uids:
        return 0o600, uids.pop(), 0
    # 0644 is the API server's default.
    return volume["projected"].get("defaultMode", 0o644), 0, 0


def directory(work, mode):
    path = tempfile.mkdtemp(dir=work)
    mount("-t", "tmpfs", "-o", f"mode={mode}", "volume", path)
    return pathlib.Path(path)


class Container:
    """The container `name` of the pod's specification. `volumes` are the directories of those that matter."""

    def __init__(self, work, spec, name, volumes, files, prefix=None):
        self.spec = spec
        [self.item] = [item for item in spec["initContainers"] + spec["containers"] if item["name"] == name]
        self.root = directory(work, "0755")
        for path in ("usr/bin", "usr/local/bin", "usr/lib", "usr/lib64", "proc", "dev", "etc", "run", "var", "tmp"):
            (self.root / path).mkdir(parents=True)
        for link in ("bin", "lib", "lib64"):
            (self.root / link).symlink_to(f"usr/{link}")
        (self.root / "var/run").symlink_to("../run")
        for path in ("usr/lib", "usr/lib64"):
            show(f"/{path}", self.root / path)
        mount("-t", "proc", "proc", self.root / "proc")
        binaries = {f"usr/bin/{tool}": shutil.which(tool) for tool in TOOLS} | {"usr/bin/sh": "/bin/dash"}
        for path, source in (binaries | files).items():
            (self.root / path).touch()
            show(source, self.root / path)
        for node in ("null", "urandom"):
            (self.root / "dev" / node).touch()
            mount("--bind", f"/dev/{node}", self.root / "dev" / node)
        if prefix:
            # A Python with its modules, at the path that it was built for.
            (self.root / prefix.lstrip("/")).mkdir(parents=True)
            show(prefix, self.root / prefix.lstrip("/"))
        for item in self.item["volumeMounts"]:
            place = self.root / item["mountPath"].lstrip("/").replace("var/run", "run", 1)
            place.mkdir(parents=True, exist_ok=True)
            mount("--bind", volumes[item["name"]], place)
            if item.get("readOnly"):
                mount("-o", "remount,bind,ro", place)
        mount("-o", "remount,bind,ro", self.root)

    def start(self, command, variables=(), **options):
        """A process in the container. Its variables are those of the specification alone, besides the image's PATH."""
        uid = self.item["securityContext"]["runAsUser"]
        group = self.spec.get("securityContext", {}).get("fsGroup", uid)
        environment = {"PATH": "/usr/local/bin:/usr/bin"} | {item["name"]: item["value"] for item in self.item["env"]}
        chroot = ["/usr/sbin/chroot", f"--userspec={uid}:{uid}", f"--groups={group}", self.root]
        return subprocess.Popen([*chroot, *command], env=environment | dict(variables), cwd="/", text=True, **options)

    def run(self, command, variables=()):
        process = self.start(command, variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output, error = process.communicate()
        return process.returncode, output, error


def write_token(path, token, mode, owner, group):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(token)
    os.chown(path, owner, group)
    path.chmod(mode)
