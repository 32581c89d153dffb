"""Gets a credential, watches it, handles an error by its reason, and reports a rejection. Prints no secret.

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
    # The request has only a name. Before you send a secret, check the owner of the socket.
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
            if info.reason != "UNKNOWN_PROVIDER":
                raise
            print(f"error code={error.code().name} reason={info.reason} domain={info.domain}", flush=True)
            print(f"message {error.details()}", flush=True)

        # As after an answer 401 of an API server.
        report = pb.ReportRejectedRequest(ref=ref, generation=first.generation)
        answer = broker.ReportRejected(report, timeout=TIMEOUT)
        say("report", answer.credential)
        print(f"outcome={pb.ReportRejectedResponse.Outcome.Name(answer.outcome)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
