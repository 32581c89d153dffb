"""Follows a credential of credbroker: prints each generation as it comes, and no secret.

See README.md beside this file for the commands that generate `credbroker.v1`.
"""

import argparse
import os
import random
import sys
import time

import grpc
from credbroker.v1 import credbroker_pb2, credbroker_pb2_grpc

# Worth another try: the broker restarts or its plugin failed (UNAVAILABLE), or a limit is reached.
TRANSIENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
SHORTEST_PAUSE, LONGEST_PAUSE = 0.2, 10.0

# The broker is on this machine: no proxy, and no minutes between two attempts to connect.
OPTIONS = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
]


def default_socket():
    """Returns the socket that clients use by default."""
    if "CREDBROKER_SOCKET" in os.environ:
        return os.environ["CREDBROKER_SOCKET"].removeprefix("unix://")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.geteuid() != 0:
        mine = os.path.join(runtime, "credbroker", "credbroker.sock")
        if os.path.exists(mine):
            return mine
    return "/run/credbroker/credbroker.sock"


def rotations(stub, provider):
    """Yields the current credential, then each new one, without end."""
    request = credbroker_pb2.WatchCredentialRequest(ref={"provider": {"name": provider}})
    pause = SHORTEST_PAUSE
    while True:
        try:
            for message in stub.WatchCredential(request, wait_for_ready=True):
                pause = SHORTEST_PAUSE
                yield message.credential
        except grpc.RpcError as error:
            if error.code() not in TRANSIENT:
                raise
            print(f"{error.code().name}: {error.details()}", file=sys.stderr, flush=True)
        # Many clients lose one broker at once: they must not all come back at once.
        time.sleep(random.uniform(pause / 2, pause))
        pause = min(2 * pause, LONGEST_PAUSE)


def line(credential):
    """What may be shown of a credential."""
    kinds = [("token", credential.token), ("certificate", credential.client_certificate_data)]
    held = "+".join(name for name, value in kinds if value)
    ends = "unknown"
    if credential.HasField("expiration_time"):
        ends = credential.expiration_time.ToJsonString()
    return f"generation={credential.generation} holds={held} expires={ends}"


def main():
    parser = argparse.ArgumentParser(description="Follow a credential of credbroker")
    parser.add_argument("--provider", required=True, help="the provider's name")
    parser.add_argument("--socket", default=default_socket(), help="the broker's socket [%(default)s]")
    args = parser.parse_args()
    # The request has only a name. Before you send a secret, check the owner of the socket.
    with grpc.insecure_channel(f"unix:{os.path.abspath(args.socket)}", options=OPTIONS) as channel:
        stub = credbroker_pb2_grpc.CredentialBrokerStub(channel)
        try:
            for credential in rotations(stub, args.provider):
                print(line(credential), flush=True)
        except grpc.RpcError as error:
            sys.exit(f"{error.code().name}: {error.details()}")
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
