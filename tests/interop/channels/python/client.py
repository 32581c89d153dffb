"""Gets a credential, watches it, handles an error by its reason, and reports a rejection. Prints no secret."""

import sys

import grpc
from credbroker.v1 import credbroker_pb2 as pb, credbroker_pb2_grpc
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status


def say(what, credential):
    token = "yes" if credential.HasField("token") else "no"
    print(f"{what} generation={credential.generation} token={token}", flush=True)


def main(socket, provider):
    ref = pb.CredentialRef(provider=pb.ProviderRef(name=provider))
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        broker = credbroker_pb2_grpc.CredentialBrokerStub(channel)
        first = broker.GetCredential(pb.GetCredentialRequest(ref=ref), timeout=60).credential
        say("get", first)
        watch = broker.WatchCredential(pb.WatchCredentialRequest(ref=ref), timeout=60)
        for _ in range(3):
            say("watch", next(watch).credential)
        watch.cancel()
        unknown = pb.CredentialRef(provider=pb.ProviderRef(name="not-configured"))
        try:
            broker.GetCredential(pb.GetCredentialRequest(ref=unknown), timeout=60)
        except grpc.RpcError as error:
            info = ErrorInfo()
            found = any(detail.Unpack(info) for detail in rpc_status.from_call(error).details)
            if not found or info.reason != "UNKNOWN_PROVIDER":
                raise
            print(f"error code={error.code().name} reason={info.reason}\nmessage {error.details()}", flush=True)
        # As after an answer 401 of an API server.
        report = pb.ReportRejectedRequest(ref=ref, generation=first.generation)
        answer = broker.ReportRejected(report, timeout=60)
        say("report", answer.credential)
        print(f"outcome={pb.ReportRejectedResponse.Outcome.Name(answer.outcome)}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
