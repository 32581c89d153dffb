import com.google.rpc.ErrorInfo;
import io.credbroker.v1.*;
import io.grpc.*;
import io.grpc.protobuf.StatusProto;
import java.util.concurrent.TimeUnit;

/** Gets a credential, watches it, handles an error by its reason, and reports a rejection. Prints no secret. */
public final class Client {
  public static void main(String[] args) throws Exception {
    ask(Grpc.newChannelBuilder("unix://" + args[0], InsecureChannelCredentials.create()).build(), args[1]);
  }

  static void ask(ManagedChannel channel, String provider) throws Exception {
    var broker = CredentialBrokerGrpc.newBlockingStub(channel).withDeadlineAfter(60, TimeUnit.SECONDS);
    var ref = named(provider);
    var first = broker.getCredential(GetCredentialRequest.newBuilder().setRef(ref).build()).getCredential();
    say("get", first);
    var watch = broker.watchCredential(WatchCredentialRequest.newBuilder().setRef(ref).build());
    for (int seen = 0; seen < 3; seen++) {
      say("watch", watch.next().getCredential());
    }
    try {
      broker.getCredential(GetCredentialRequest.newBuilder().setRef(named("not-configured")).build());
    } catch (StatusRuntimeException error) {
      var details = StatusProto.fromThrowable(error).getDetailsList().stream();
      var info = details.filter(detail -> detail.is(ErrorInfo.class)).findFirst().orElseThrow();
      var reason = info.unpack(ErrorInfo.class).getReason();
      if (!reason.equals(ErrorReason.UNKNOWN_PROVIDER.name())) throw error;
      var status = error.getStatus();
      System.out.printf("error code=%s reason=%s%nmessage %s%n", status.getCode(), reason, status.getDescription());
    }
    // As after an answer 401 of an API server.
    var rejected = ReportRejectedRequest.newBuilder().setRef(ref).setGeneration(first.getGeneration()).build();
    var answer = broker.reportRejected(rejected);
    say("report", answer.getCredential());
    System.out.printf("outcome=%s%n", answer.getOutcome());
    channel.shutdownNow().awaitTermination(10, TimeUnit.SECONDS);
  }

  private static CredentialRef named(String provider) {
    return CredentialRef.newBuilder().setProvider(ProviderRef.newBuilder().setName(provider)).build();
  }

  private static void say(String what, Credential credential) {
    var token = credential.hasToken() ? "yes" : "no";
    System.out.printf("%s generation=%s token=%s%n", what, credential.getGeneration(), token);
  }
}
