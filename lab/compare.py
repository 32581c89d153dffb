#!/usr/bin/env python3
"""Measures credbroker and other caches of credentials in one run, and prints a table.

usage: lab/compare.py [NAME=PROGRAM...]

    kcc-cache=PROGRAM     of https://github.com/ryodocx/kube-credential-cache
    kubelogin=PROGRAM     of https://github.com/int128/kubelogin, as tests/interop/kubelogin/setup.sh builds it, with its issuer
                          in the same directory

All have the same plugin, which takes half a second; kubelogin is itself the plugin, and has a token in its own cache. "Warm"
is the whole life of a process that answers from the cache, in turns. "Twenty" is how often the plugin runs, and how long it
takes, when twenty processes start in parallel and nothing is cached.
"""

import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 300
PARALLEL = 20
PLUGIN = """#!/bin/sh
echo run >>"{runs}"
sleep 0.5
printf '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"token","expirationTimestamp":"%s"}}}}' \\
    "$(date -u -d '+1 hour' +%Y-%m-%dT%H:%M:%SZ)"
"""


def spawn(command, env):
    out = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]
    return os.posix_spawn(command[0], [str(argument) for argument in command], env, file_actions=out)


def ended(process):
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code:
        sys.exit(f"a process ended with {code}")


def life(command, env):
    """Seconds from before the process is started until it is gone."""
    begin = time.perf_counter()
    ended(spawn(command, env))
    return time.perf_counter() - begin


def twenty(command, env, runs):
    """How often the plugin ran, and the seconds until the last process was gone."""
    runs.unlink(missing_ok=True)
    begin = time.perf_counter()
    for process in [spawn(command, env) for _ in range(PARALLEL)]:
        ended(process)
    return len(runs.read_text().splitlines()), time.perf_counter() - begin


@contextlib.contextmanager
def started(command, **options):
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def broker(stack, work, plugin, env):
    """The command of the shim, with a broker that runs."""
    programs = ROOT / "target/release"
    subprocess.run(["cargo", "build", "--release", "--locked"], cwd=ROOT, check=True)
    config, socket = work / "config.yaml", work / "run/socket"
    execution = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    config.write_text(json.dumps({"apiVersion": "credbroker.io/v1alpha1", "kind": "BrokerConfig",
                                  "providers": [{"name": "sample", "execConfig": execution}]}))
    config.chmod(0o600)
    socket.parent.mkdir(mode=0o700)
    serve = [programs / "credbroker", "serve", "--config", config, "--socket", socket]
    stack.enter_context(started(serve, env=env, stderr=subprocess.DEVNULL))
    end = time.monotonic() + 20
    while subprocess.run([programs / "credbroker", "healthcheck", "--socket", socket], env=env, capture_output=True).returncode:
        if time.monotonic() > end:
            sys.exit("the broker does not start")
        time.sleep(0.05)
    return [programs / "credbroker-exec", "--provider", "sample", "--socket", socket]


def kubelogin(stack, program, env):
    """A command of kubelogin whose token is in its cache."""
    issuer = stack.enter_context(started([Path(program).with_name("issuer")], stdout=subprocess.PIPE, text=True))
    url = re.search(r"https?://\S+", issuer.stdout.readline()).group()
    return [program, "get-token", f"--oidc-issuer-url={url}", "--oidc-client-id=kubernetes", "--grant-type=password",
            "--username=jane", "--password=correct horse"]


def main():
    others = dict(argument.split("=", 1) for argument in sys.argv[1:])
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        runs, plugin = work / "runs", work / "plugin"
        plugin.write_text(PLUGIN.format(runs=runs))
        plugin.chmod(0o700)
        env = {"PATH": os.environ["PATH"], "HOME": str(work)}
        commands = {"the plugin alone": [plugin], "credbroker": broker(stack, work, plugin, env)}
        if "kcc-cache" in others:
            commands["kcc-cache"] = [others["kcc-cache"], plugin]
        cold = {name: twenty(command, env, runs) for name, command in commands.items()}
        if "kubelogin" in others:
            commands["kubelogin"] = kubelogin(stack, others["kubelogin"], env)
            life(commands["kubelogin"], env)
        warm = {name: [] for name in commands}
        for number in range(ROUNDS):
            for name, command in commands.items():
                if name != "the plugin alone" or number % 30 == 0:
                    warm[name].append(life(command, env))
    print(f"| | Warm, p50 | p99 | Runs of the plugin for {PARALLEL} | Time for {PARALLEL} |\n|---|---|---|---|---|")
    for name, times in warm.items():
        p50, p99 = statistics.median(times), sorted(times)[len(times) * 99 // 100]
        ran, took = cold.get(name, (None, None))
        print(f"| {name} | {p50 * 1000:.1f} ms | {p99 * 1000:.1f} ms | {ran or '-'} | {f'{took:.2f} s' if took else '-'} |")


main()
