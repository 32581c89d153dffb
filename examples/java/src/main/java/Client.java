import com.google.rpc.ErrorInfo;
import io.credbroker.v1.Credential;
import io.credbroker.v1.CredentialBrokerGrpc;
import io.credbroker.v1.CredentialRef;
import io.credbroker.v1.ErrorReason;
import io.credbroker.v1.GetCredentialRequest;
import io.credbroker.v1.ProviderRef;
import io.credbroker.v1.ReportRejectedRequest;
import io.credbroker.v1.WatchCredentialRequest;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.util.concurrent.TimeUnit;

/**
 * Gets a credential, watches it, handles an error by its reason, and reports a rejection. Prints no secret.
 *
 * <p>Usage: Client SOCKET PROVIDER
 */
public final class Client {
  private static final int WATCHED = 3;

  public static void main(String[] args) throws Exception {
    // The request has only a name. Before you send a secret, check the owner of the socket.
    ask(Grpc.newChannelBuilder("unix://" + args[0], InsecureChannelCredentials.create()).build(), args[1]);
  }

  static void ask(ManagedChannel channel, String provider) throws Exception {
    var broker = CredentialBrokerGrpc.newBlockingStub(channel);
    var get = GetCredentialRequest.newBuilder().setRef(named(provider)).build();
    var first = broker.withDeadlineAfter(60, TimeUnit.SECONDS).getCredential(get).getCredential();
    say("get", first);

    var follow = WatchCredentialRequest.newBuilder().setRef(named(provider)).build();
    var watch = broker.withDeadlineAfter(60, TimeUnit.SECONDS).watchCredential(follow);
    for (int seen = 0; seen < WATCHED; seen++) {
      say("watch", watch.next().getCredential());
    }

    try {
      var unknown = GetCredentialRequest.newBuilder().setRef(named("not-configured")).build();
      broker.withDeadlineAfter(60, TimeUnit.SECONDS).getCredential(unknown);
    } catch (StatusRuntimeException error) {
      var info = StatusProto.fromThrowable(error).getDetails(0).unpack(ErrorInfo.class);
      if (!info.getReason().equals(ErrorReason.UNKNOWN_PROVIDER.name())) {
        throw error;
      }
      var code = error.getStatus().getCode();
      System.out.printf("error code=%s reason=%s domain=%s%n", code, info.getReason(), info.getDomain());
      System.out.printf("message %s%n", error.getStatus().getDescription());
    }

    // As after an answer 401 of an API server.
    var rejected = ReportRejectedRequest.newBuilder().setRef(named(provider)).setGeneration(first.getGeneration());
    var report = broker.withDeadlineAfter(60, TimeUnit.SECONDS).reportRejected(rejected.build());
    say("report", report.getCredential());
    System.out.printf("outcome=%s%n", report.getOutcome());
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
