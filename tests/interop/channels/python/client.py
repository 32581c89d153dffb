"""Asks a broker through grpcio's default channel: get, watch, an error's reason, report. Prints no secret.

Usage: client.py SOCKET PROVIDER, with the generated `credbroker.v1` on PYTHONPATH.
"""

import sys

import grpc
from credbroker.v1 import credbroker_pb2 as pb
from credbroker.v1 import credbroker_pb2_grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

WATCHED = 3
TIMEOUT = 60


def say(what, credential):
    token = "yes" if credential.HasField("token") else "no"
    print(f"{what} generation={credential.generation} token={token}", flush=True)


def main(socket, provider):
    ref = pb.CredentialRef(provider=pb.ProviderRef(name=provider))
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        broker = credbroker_pb2_grpc.CredentialBrokerStub(channel)
        first = broker.GetCredential(pb.GetCredentialRequest(ref=ref), timeout=TIMEOUT).credential
        say("get", first)

        watch = broker.WatchCredential(pb.WatchCredentialRequest(ref=ref), timeout=TIMEOUT)
        for _ in range(WATCHED):
            say("watch", next(watch).credential)
        watch.cancel()

        unknown = pb.CredentialRef(provider=pb.ProviderRef(name="not-configured"))
        try:
            broker.GetCredential(pb.GetCredentialRequest(ref=unknown), timeout=TIMEOUT)
        except grpc.RpcError as error:
            info = error_details_pb2.ErrorInfo()
            rpc_status.from_call(error).details[0].Unpack(info)
            print(f"error code={error.code().name} reason={info.reason} domain={info.domain}", flush=True)
            print(f"message {error.details()}", flush=True)

        report = pb.ReportRejectedRequest(ref=ref, generation=first.generation)
        answer = broker.ReportRejected(report, timeout=TIMEOUT)
        say("report", answer.credential)
        print(f"outcome={pb.ReportRejectedResponse.Outcome.Name(answer.outcome)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
