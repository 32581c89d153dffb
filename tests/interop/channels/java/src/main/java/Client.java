import com.google.protobuf.Any;
import com.google.rpc.ErrorInfo;
import io.credbroker.v1.Credential;
import io.credbroker.v1.CredentialBrokerGrpc;
import io.credbroker.v1.CredentialRef;
import io.credbroker.v1.GetCredentialRequest;
import io.credbroker.v1.ProviderRef;
import io.credbroker.v1.ReportRejectedRequest;
import io.credbroker.v1.ReportRejectedResponse;
import io.credbroker.v1.WatchCredentialRequest;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import io.grpc.protobuf.StatusProto;
import java.util.concurrent.TimeUnit;

/**
 * Asks a broker through grpc-java's default channel: get, watch, an error's reason, report. Prints no secret.
 *
 * <p>Usage: Client SOCKET PROVIDER target|address
 */
public final class Client {
  private static final int WATCHED = 3;

  public static void main(String[] args) throws Exception {
    EpollEventLoopGroup loops = new EpollEventLoopGroup(1);
    ManagedChannel channel = args[2].equals("target") ? byTarget(args[0]) : byAddress(args[0], loops);
    try {
      ask(channel, args[1]);
    } finally {
      channel.shutdownNow().awaitTermination(10, TimeUnit.SECONDS);
      loops.shutdownGracefully(0, 0, TimeUnit.SECONDS);
    }
  }

  private static ManagedChannel byTarget(String socket) {
    return Grpc.newChannelBuilder("unix://" + socket, InsecureChannelCredentials.create()).build();
  }

  private static ManagedChannel byAddress(String socket, EpollEventLoopGroup loops) {
    return NettyChannelBuilder.forAddress(new DomainSocketAddress(socket))
        .channelType(EpollDomainSocketChannel.class)
        .eventLoopGroup(loops)
        .usePlaintext()
        .build();
  }

  private static void ask(ManagedChannel channel, String provider) throws Exception {
    CredentialRef ref = named(provider);
    GetCredentialRequest get = GetCredentialRequest.newBuilder().setRef(ref).build();
    Credential first = broker(channel).getCredential(get).getCredential();
    say("get", first);

    var watch = broker(channel).watchCredential(WatchCredentialRequest.newBuilder().setRef(ref).build());
    for (int seen = 0; seen < WATCHED; seen++) {
      say("watch", watch.next().getCredential());
    }

    CredentialRef unknown = named("not-configured");
    try {
      broker(channel).getCredential(get.toBuilder().setRef(unknown).build());
    } catch (StatusRuntimeException error) {
      Any detail = StatusProto.fromThrowable(error).getDetails(0);
      ErrorInfo info = detail.unpack(ErrorInfo.class);
      System.out.printf(
          "error code=%s reason=%s domain=%s%n",
          error.getStatus().getCode(), info.getReason(), info.getDomain());
      System.out.printf("message %s%n", error.getStatus().getDescription());
    }

    ReportRejectedRequest report =
        ReportRejectedRequest.newBuilder().setRef(ref).setGeneration(first.getGeneration()).build();
    ReportRejectedResponse replaced = broker(channel).reportRejected(report);
    say("report", replaced.getCredential());
    System.out.printf("outcome=%s%n", replaced.getOutcome());
  }

  private static CredentialRef named(String provider) {
    return CredentialRef.newBuilder().setProvider(ProviderRef.newBuilder().setName(provider)).build();
  }

  private static CredentialBrokerGrpc.CredentialBrokerBlockingStub broker(ManagedChannel channel) {
    return CredentialBrokerGrpc.newBlockingStub(channel).withDeadlineAfter(60, TimeUnit.SECONDS);
  }

  private static void say(String what, Credential credential) {
    String token = credential.hasToken() ? "yes" : "no";
    System.out.printf("%s generation=%s token=%s%n", what, credential.getGeneration(), token);
  }
}
