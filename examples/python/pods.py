"""Lists the pods of a cluster once a second, with the current credential of a ClusterProfile: pods.py NAMESPACE NAME"""

import os
import socket
import sys
import tempfile
import threading
import time

import grpc
from credbroker.v1 import credbroker_pb2 as pb, credbroker_pb2_grpc
from google.rpc.error_details_pb2 import RetryInfo
from grpc_status import rpc_status
from kubernetes import client


def check_server(path):
    """Ends the program unless a trusted user serves the socket: another one could send any credential and cluster."""
    own, named = {0, os.geteuid()}, os.environ.get("CREDBROKER_BROKER_UID")
    trusted = {int(named)} if named else own
    above = os.stat(os.path.dirname(path))
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(path)
        uid = int.from_bytes(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 8)[4:], sys.byteorder)
    if uid not in trusted or above.st_uid not in own | trusted or above.st_mode & 0o022:
        owner = f"uid {above.st_uid} with mode {above.st_mode & 0o7777:o}"
        print(f"{path} is not trusted: uid {uid} listens, in a directory of {owner}", file=sys.stderr)
        os._exit(1)  # Now and then, `sys.exit` aborts because of the other thread.


def connect(answer):
    """A client of the cluster, the generation of its credential, and the file of its key."""
    cluster, credential = answer.cluster, answer.credential
    # Python reads a key by a path only. This file has no name: it ends with the client.
    pair = tempfile.TemporaryFile(buffering=0)
    pair.write(credential.client_certificate_data + credential.client_key_data)
    config = client.Configuration(
        cluster.server,
        {"authorization": f"Bearer {credential.token}"} if credential.token else {},
        ca_cert_data=cluster.certificate_authority_data.decode() or None,
        cert_file=f"/proc/self/fd/{pair.fileno()}" if credential.client_key_data else None,
        verify_ssl=not cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        proxy=cluster.proxy_url or None,
    )
    return client.CoreV1Api(client.ApiClient(config)), credential.generation, pair


def list_pods(core, generation, _pair):
    pods = core.list_pod_for_all_namespaces(_request_timeout=20).items
    print(f"{len(pods)} pods, generation {generation}", flush=True)


def list_forever():
    while True:
        time.sleep(1)
        try:
            for core, generation, pair in newest:
                try:
                    list_pods(core, generation, pair)
                except client.exceptions.UnauthorizedException:
                    report = pb.ReportRejectedRequest(ref=ref, generation=generation)
                    list_pods(*connect(broker.ReportRejected(report, timeout=60)))
        except Exception as error:  # The next list may succeed.
            print(error, file=sys.stderr)


ref = pb.CredentialRef(cluster_profile=pb.ClusterProfileRef(namespace=sys.argv[1], name=sys.argv[2]))
path = os.path.realpath(os.environ.get("CREDBROKER_SOCKET", "/run/credbroker/credbroker.sock").removeprefix("unix://"))
broker = credbroker_pb2_grpc.CredentialBrokerStub(grpc.insecure_channel(f"unix:{path}"))
newest = []
threading.Thread(target=list_forever, daemon=True).start()
while True:
    retry = RetryInfo(retry_delay={"seconds": 1})
    try:
        check_server(path)
        for answer in broker.WatchCredential(pb.WatchCredentialRequest(ref=ref)):
            newest[:] = [connect(answer)]
    except (OSError, grpc.RpcError) as error:  # The broker is away, or has no credential.
        print(error, file=sys.stderr)
        status = rpc_status.from_call(error) if isinstance(error, grpc.RpcError) else None
        any(detail.Unpack(retry) for detail in (status.details if status else []))
    time.sleep(retry.retry_delay.ToTimedelta().total_seconds())
